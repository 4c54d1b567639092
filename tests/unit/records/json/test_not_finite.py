"""Floats that JSON has no number for, as the texts that PostgreSQL, Jackson and Calve's own sources write for them."""

from __future__ import annotations

import json
import math
from importlib import import_module
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calve.sink_core import compiled
from calve.sink_core.packed import packed
from calve.sink_core.records.columns.names import names_of
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.decode.decoded import FIT
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming
from tests.unit.records.decode.outcomes import outcomes

TEXTS = ("NaN", "Infinity", "-Infinity")
OTHERS = (
    "nan",
    "-NaN",
    "+Infinity",
    "Inf",
    "-Inf",
    "infinity",
    "NaN ",
    " Infinity",
    "--Infinity",
    "Infinit",
    "1.5",
    "",
)
FLAT = {"d": "double", "f": "float"}


@pytest.fixture(scope="module", params=["parsed", "kernel"], autouse=True)
def by(request: pytest.FixtureRequest) -> Any:
    by_kernel = request.param == "kernel"
    if by_kernel:
        import_module(compiled.JSON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "usable", lambda *_: by_kernel)
        yield request.param


def read(columns: dict[str, str], *values: object) -> list[Any]:
    raw = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return outcomes(JsonDecoder(schema_of(columns)).decode(packed(raw)), len(raw))


def same(found: Any, text: str) -> bool:
    return isinstance(found, float) and (math.isnan(found) if text == "NaN" else found == float(text))


@pytest.mark.parametrize("text", TEXTS)
def test_a_float_takes_the_three_texts_wherever_it_stands(text: str) -> None:
    [flat] = read(FLAT, {"d": text, "f": text})
    assert same(flat["d"], text)
    assert same(flat["f"], text)
    columns = {"s": "struct<d: double>", "l": "list<float>", "m": "map<string, double>", "k": "map<double, long>"}
    [deep] = read(columns, {"s": {"d": text}, "l": [1, text], "m": {"a": text}, "k": {text: 1}})
    assert all(same(each, text) for each in (deep["s"]["d"], deep["l"][1], dict(deep["m"])["a"]))
    assert same(next(iter(dict(deep["k"]))), text)


@pytest.mark.parametrize("text", OTHERS)
def test_and_no_other_text(text: str) -> None:
    good, bad, after = read(FLAT, {"d": 1.5, "f": 2}, {"d": text}, {"f": -1})
    assert (good, after) == ({"d": 1.5, "f": 2.0}, {"d": None, "f": -1.0})
    assert bad == (FIT, Naming(of="d"))


def test_no_other_column_takes_them_for_numbers() -> None:
    columns = {"t": "string", "l": "long", "c": "decimal(9, 2)"}
    text, whole, exact = read(columns, {"t": "NaN"}, {"l": "NaN"}, {"c": "NaN"})
    assert text["t"] == "NaN"
    assert [whole, exact] == [(FIT, Naming(of="l")), (FIT, Naming(of="c"))]


def test_one_among_many_costs_no_other_record_anything() -> None:
    records = [{"d": number / 2, "f": number, "more": "NaN"} for number in range(1_000)]
    records[500]["d"], records[501]["d"] = "Infinity", "none"
    found = read(FLAT, *records)
    assert found[500] == {"d": math.inf, "f": 500.0}
    assert [at for at, each in enumerate(found) if not isinstance(each, dict)] == [501]
    assert [each["d"] for at, each in enumerate(found) if at not in (500, 501)] == [
        number / 2 for number in range(1_000) if number not in (500, 501)
    ]


def test_under_another_name_too() -> None:
    schema = schema_of(FLAT)
    names = names_of(schema, {1: ["of_old"]})
    [found] = outcomes(JsonDecoder(schema, (), names).decode([b'{"of_old": "-Infinity"}']), 1)
    assert found["d"] == -math.inf


def test_a_column_is_made_of_numbers_and_such_texts_and_of_such_texts_alone_it_is_text() -> None:
    values = [b'{"a": "NaN", "b": 1, "c": "NaN", "d": "Infinity", "e": [1, "NaN"]}']
    values += [b'{"a": 1.5, "b": "-Infinity", "c": "x", "d": null, "e": []}']
    columns = {field.name: str(field.field_type) for field in infer_schema(values).fields}
    assert columns == {"a": "double", "b": "double", "c": "string", "d": "string", "e": "list<double>"}


@pytest.mark.parametrize("first", [b'{"x": "NaN"}', b'{"x": 1.5}'])
def test_a_column_that_comes_later_is_the_same(first: bytes) -> None:
    decoder = JsonDecoder(schema_of({"id": "long"}), ("add_column",))
    wanted = decoder.decode([first, b'{"x": 2}', b'{"x": "Infinity"}']).wanted
    assert wanted is not None
    assert str(wanted.find_type("x")) == "double"


def test_a_float_that_may_be_widened_is_not_for_them() -> None:
    decoder = JsonDecoder(schema_of({"f": "float"}), ("widen", "add_column"))
    assert decoder.decode([b'{"f": "NaN"}', b'{"f": "Infinity"}']).wanted is None


TEXT = st.one_of(
    st.sampled_from((*TEXTS, *OTHERS)),
    st.text("NaIfnity-+ \\u0041", max_size=12),
    st.floats().map(repr),
)


@given(st.lists(TEXT, min_size=1, max_size=8))
@example(["NaN"])
@example(["\\u004eaN"])
def test_any_texts_are_read_as_python_reads_them(texts: list[str]) -> None:
    """A text is one of the three as JSON says it, whatever its spelling and its neighbours."""
    values = [f'{{"d":"{text}"}}'.encode() for text in texts]
    for value, found in zip(values, read(FLAT, *values), strict=True):
        try:
            said = json.loads(value)["d"]
        except ValueError:
            said = None
        if said in TEXTS:
            assert same(found["d"], said)
        else:
            assert not isinstance(found, dict)

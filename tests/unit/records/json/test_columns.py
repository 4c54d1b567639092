"""A sample's schema: the stated rules, and that what was sampled decodes under it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.type_text import type_text
from calve.sink_core.records.json.columns import ONLY_EMPTY, ONLY_NULL, ROUNDED, infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import names as names_in
from tests.codes import raises


def inferred(*records: object) -> dict[str, str]:
    schema = infer_schema([json.dumps(record).encode() for record in records])
    return {field.name: type_text(field.field_type) for field in schema.fields}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, -(2**63), 2**63 - 1], "long"),
        ([2**63], "decimal(38, 0)"),
        ([-(2**63) - 1, 10**38 - 2], "decimal(38, 0)"),
        ([10**38], "double"),
        ([1, 1.5], "double"),
        ([1e3], "double"),
        ([True, None], "boolean"),
        (["2024-05-31T10:00:00Z", "2024-05-31T10:00:00.123456+02:00"], "timestamptz"),
        (["2024-05-31T10:00:00", "2024-05-31 10:00:00.5"], "timestamp"),
        (["2024-05-31"], "date"),
        (["2024-05-31", "2024-05-31T10:00:00Z"], "string"),
        (["2024-05-31T10:00:00", "2024-05-31T10:00:00Z"], "string"),
        (["2024-02-30"], "string"),
        (["2024-05-31T10:00:00.1234567Z"], "string"),
        (["abc"], "string"),
        ([None], "string"),
        ([{"a": 1}, {"b": "x"}], "struct<a: long, b: string>"),
        ([[1], [], [2.5], [None]], "list<double>"),
        ([[{"a": [True]}]], "list<struct<a: list<boolean>>>"),
        ([[]], "list<string>"),
    ],
)
def test_each_kind_of_value_has_its_type(values: list[object], expected: str) -> None:
    assert inferred(*({"it": value} for value in values)) == {"it": expected}


def test_columns_are_optional_and_in_the_order_first_seen() -> None:
    schema = infer_schema([b'{"b": 1}', b'{"a": 1, "b": 2}'])
    assert [(field.name, field.required) for field in schema.fields] == [("b", False), ("a", False)]


def test_what_the_sample_could_not_tell_is_said_in_the_column() -> None:
    schema = infer_schema([b'{"a": null, "b": [], "c": 1}'])
    assert [field.doc for field in schema.fields] == [ONLY_NULL, ONLY_EMPTY, None]


def test_a_column_that_rounds_says_so() -> None:
    values = [b'{"a": 9007199254740993, "b": 9007199254740992, "c": 9007199254740993}', b'{"a": 1.5, "b": 1.5}']
    schema = infer_schema(values)
    assert [(field.name, str(field.field_type), field.doc) for field in schema.fields] == [
        ("a", "double", ROUNDED),
        ("b", "double", None),
        ("c", "long", None),
    ]


def test_an_object_that_is_always_empty_has_no_column() -> None:
    assert inferred({"a": {}, "b": [{}], "c": 1}) == {"c": "long"}


@pytest.mark.parametrize(
    ("records", "named"),
    [
        (({"a": 1}, {"a": "x"}), ["a", "integers", "strings"]),
        (({"a": {"b": [True, 1.5]}},), ["a.b[]", "booleans", "numbers"]),
        (({"a": [1]}, {"a": {"b": 1}}), ["a", "arrays", "objects"]),
    ],
)
def test_two_kinds_in_one_field_are_refused_by_name(records: tuple[object, ...], named: list[str]) -> None:
    with raises(Code.TWO_KINDS) as raised:
        inferred(*records)
    names_in(raised.value.message, *named)


def test_what_is_no_json_object_is_skipped() -> None:
    odd = [b"", b"{", b"[1]", b"1", b"null", b'{"a": NaN}', b'{"a": 1, "a": "x"}', b'{"a": "\xff"}', b"[" * 100_000]
    assert type_text(infer_schema([*odd, b'{"a": true}']).find_type("a")) == "boolean"


def test_a_sample_without_an_object_asks_for_the_columns() -> None:
    with raises(Code.NO_SAMPLE, "auto_create.columns"):
        infer_schema([b"not json"])


times = st.datetimes().map(lambda t: t.isoformat() + "Z") | st.datetimes().map(lambda t: t.isoformat())
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.dates().map(str)
    | times
)
names = st.sampled_from(["a", "b", "c c", "Ä"])
objects = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.dictionaries(names, leaves | inner | st.lists(leaves | inner, max_size=3), max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.lists(objects, min_size=1, max_size=4))
def test_every_sampled_record_decodes_under_the_inferred_schema(records: list[dict[str, object]]) -> None:
    values = [json.dumps(record).encode() for record in records]
    try:
        schema = infer_schema(values)
    except ConfigError:
        return
    decoded = JsonDecoder(schema).decode(values)
    assert decoded.bad == ()
    assert decoded.columns.num_rows == len(values)

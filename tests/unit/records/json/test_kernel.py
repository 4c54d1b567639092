"""Records that the kernel reads come to the same as those that the parser reads, whatever their neighbours are."""

from __future__ import annotations

import json
import random
from importlib import import_module
from typing import Any, cast

import numpy as np
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from bench.shapes import FLAT, SHAPES
from calve.sink_core import compiled
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.packed import packed
from calve.sink_core.records.columns.arrow import file_schema
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.columns.type_text import schema_of, type_text
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.json import decoder
from calve.sink_core.records.json.block import parsed_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.unit.records.json.any_json import any_columns, any_record

IGNORING = Names(ignored=("*",))
STEPS: tuple[tuple[EvolveStep, ...], ...] = ((), (), ("add_column",), ("add_column", "widen", "make_optional"))
RECORDS = 40


def kinds_of(struct: StructType) -> dict[str, object]:
    """What `any_record` takes, of a table's fields."""
    return {
        of.name: kinds_of(of.field_type) if isinstance(of.field_type, StructType) else type_text(of.field_type)
        for of in struct.fields
    }


def agree(
    values: list[bytes], schema: Schema, steps: tuple[EvolveStep, ...], names: Names, patch: pytest.MonkeyPatch
) -> int:
    """How many values are good, with the kernel and without."""
    made = [JsonDecoder(schema, steps, names) for _ in range(2)]
    patch.setattr(compiled, "usable", lambda *_: True)
    found = made[0].decode(cast(Any, packed(values)))
    patch.setattr(compiled, "usable", lambda *_: False)
    expected = made[1].decode(values)
    assert verdict(found) == verdict(expected), (schema, values)
    assert found.columns.schema == expected.columns.schema
    # NaN is not itself.
    assert found.columns.equals(expected.columns) or repr(found.columns.to_pylist()) == repr(
        expected.columns.to_pylist()
    ), (schema, values)
    return len(found.columns)


def verdict(decoded: Decoded) -> object:
    decoded.columns.validate(full=True)
    return decoded.good, decoded.bad, decoded.wanted, dict(decoded.dropped)


@pytest.fixture(autouse=True)
def _whatever_share_is_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module(compiled.JSON)
    monkeypatch.setattr(decoder, "_MANY_SUSPECTS", 1.0)


def series(seeds: range, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many records there were, and how many were good."""
    records = good = 0
    for seed in seeds:
        chance = random.Random(seed)
        schema = schema_of(any_columns(chance))
        kinds, odd = kinds_of(schema.as_struct()), chance.choice((0.0, 0.02, 0.1, 0.4))
        values = [any_record(kinds, chance, odd) for _ in range(RECORDS)]
        steps, names = chance.choice(STEPS), chance.choice((EXACT, EXACT, IGNORING))
        good += agree(values, schema, steps, names, patch)
        records += len(values)
    return records, good


def test_any_records_of_any_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    records, good = series(range(500), monkeypatch)
    assert records == 20_000
    # Neither are nearly all of them good nor nearly all bad.
    assert records / 4 < good < records * 0.95


@pytest.mark.faults
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", range(4))
def test_a_million_records(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records, _ = series(range(10_000 + 6_250 * part, 10_000 + 6_250 * (part + 1)), monkeypatch)
    assert records == 250_000


@pytest.mark.parametrize(
    "shape", [FLAT, *(SHAPES[name] for name in ("small", "large", "nested"))], ids=lambda shape: shape.name
)
def test_usual_records_are_no_suspects(shape: Any) -> None:
    from calve.sink_core.records.json.table import table

    made = table(parsed_schema(file_schema(schema_of(shape.columns))))
    assert made is not None
    values = shape.events(200)
    found = made.read(packed(values))
    assert not found.suspect.any()
    assert found.rows.num_rows == len(values)


def test_what_many_records_have_beside_is_counted_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"id":%d,"more":{"x":[1,"}"]},"s":{"y":1,"z":null}}' % i for i in range(100)]
    made = JsonDecoder(schema_of({"id": "long", "s": "struct<x: long>"}))
    monkeypatch.setattr(compiled, "usable", lambda *_: True)
    monkeypatch.setattr(made, "_sift_all", None)
    monkeypatch.setattr(made, "_at_once", None)
    assert dict(made.decode(cast(Any, packed(values))).dropped) == {"more": 100, "s.y": 100}


def test_a_field_whose_name_is_anothers_path_is_counted_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of({"id": "long", "s": "struct<x: long>"})
    agree([b'{"s.y":1,"s":{"y":1}}', b'{"s.y":1}', b'{"s":{"y":null}}'], schema, (), EXACT, monkeypatch)


def test_a_batch_of_suspects_is_left_to_the_parser_and_so_are_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_MANY_SUSPECTS", 0.1)
    monkeypatch.setattr(compiled, "usable", lambda *_: True)
    made = JsonDecoder(schema_of({"id": "long"}))
    odd, usual = [b'{"id":1.0}'] * 20, [b'{"id":1}'] * 20
    assert made.decode(odd).columns.column("id").to_pylist() == [1] * 20
    tried = list[int]()
    table = cast(Any, made)._table
    assert table is not None
    monkeypatch.setattr(type(table), "read", counting(type(table).read, tried))
    for _ in range(cast(Any, decoder)._BATCHES_WITHOUT):
        made.decode(usual)
    assert sum(tried) == 1


def counting(call: Any, calls: list[int]) -> Any:
    def counted(*given: Any) -> Any:
        calls.append(1)
        return call(*given)

    return counted


def read_as_double(text: str) -> tuple[float, int, bool]:
    from calve.sink_core.records.json.numbers import number, powers_of_five

    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    bits, end, good = number(data, 0, len(data), False, powers_of_five())
    return float(np.int64(bits).view(np.float64)), end, good


@pytest.mark.parametrize(
    "text", ["0.1", "1e22", "9007199254740993.0", "0.012345678901234567", "123456789012345678e-10"]
)
def test_a_double_is_the_nearest(text: str) -> None:
    assert read_as_double(text) == (json.loads(text), len(text), True)


@pytest.mark.parametrize(
    "text", ["1.2345678901234567890", "98765432109876543210", "1e400", "5e-324", "01.5", "1.", "1e"]
)
def test_a_number_that_needs_more_than_a_look_is_left_to_the_parser(text: str) -> None:
    assert not read_as_double(text)[2]


@pytest.mark.parametrize("number", ["1e2147483648", "-1e-2147483648", "1e99999999999999999999"])
def test_an_exponent_beyond_all_is_a_dead_letter(number: str) -> None:
    decoded = JsonDecoder(schema_of({"a": "decimal(9, 2)"})).decode([b'{"a": 1}', f'{{"a": {number}}}'.encode()])
    assert (len(decoded.columns), [bad.index for bad in decoded.bad]) == (1, [1])

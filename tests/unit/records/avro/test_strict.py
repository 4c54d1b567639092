"""Bytes that are no Avro are no record, whoever reads them, and a record that is nested deeply ends nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    IcebergType,
    LongType,
    MapType,
    NestedField,
    StringType,
)

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.decode.decoded import DECODE, FIT
from tests.codes import Naming, names
from tests.unit.records.avro.records import COLOUR, INTS, encoded, fixed, logical, one_column, values_of, zigzag
from tests.unit.records.decode.outcomes import outcomes

MAP = MapType(2, StringType(), 3, LongType(), value_required=False)
TEN = logical("bytes", "decimal", precision=10, scale=2)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("avro", "kind", "value", "named"),
    [
        (COLOUR, StringType(), zigzag(-1), [-1, 2]),
        (COLOUR, StringType(), zigzag(2), [2]),
        (["null", "long"], LongType(), zigzag(-1) + zigzag(5), [-1, 2]),
        ("long", LongType(), b"\x80" * 10 + b"\x02", [64]),
        ("long", LongType(), b"\x80" * 9 + b"\x7f", [64]),
        ("long", LongType(), b"\x80" * 9 + b"\x02", [64]),
        ("long", LongType(), b"\xff" * 1_000_000, [64]),
        ("long", LongType(), b"\x80" * 9, []),
        ("boolean", BooleanType(), b"\x02", [0, 1]),
        ("boolean", BooleanType(), b"", [1, 0]),
        ("string", StringType(), zigzag(-1), [-1, 0]),
        ("string", StringType(), zigzag(3) + b"ab", [3, 2]),
        ({"type": "array", "items": "int"}, INTS, zigzag(-(2**63)) + b"\x02\x00", []),
        ({"type": "map", "values": "int"}, MAP, b"\x04\x02k\x02\x02k\x04\x00", ["'k'"]),
        ({"type": "map", "values": "int"}, MAP, b"\x02\x02k\x02\x02\x02k\x04\x00", ["'k'"]),
    ],
)
def test_what_is_no_avro_is_a_dead_letter(
    avro: Any, kind: IcebergType, value: bytes, named: list[object], *, at_once: bool
) -> None:
    good = {"long": 7, "boolean": True, "string": "x"}.get(str(avro), "RED" if avro == COLOUR else None)
    good = [1] if kind is INTS else {"k": 1} if kind is MAP else good
    neighbour = encoded(avro, good)
    first, second, third = values_of(one_column(avro, kind, at_once=at_once).decode([neighbour, value, neighbour]), 3)
    assert second == (DECODE, Naming("the schema", "ValueError", *named))
    assert first == third == (list(good.items()) if isinstance(good, dict) else good)


def test_arrays_in_blocks_that_say_their_sizes_are_avro() -> None:
    blocks = zigzag(-1) + zigzag(1) + zigzag(7) + zigzag(2) + zigzag(8) + zigzag(9) + zigzag(0)
    # An empty record beside makes it one by one.
    assert values_of(one_column({"type": "array", "items": "int"}, INTS).decode([blocks, b""]), 2)[0] == [7, 8, 9]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("link", [["null", "N"], {"type": "array", "items": "N"}])
def test_a_record_within_itself_may_go_as_deep_as_it_likes(link: Any, *, at_once: bool) -> None:
    chain = {"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": link}]}
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    decoder = AvroDecoder(schema, OneSchema(writer_schema("the schema", json.dumps(chain))), at_once=at_once)
    ends = b"" if isinstance(link, list) else b"\x00"
    values = [b"\x02\x02" * levels + b"\x02\x00" + ends * levels for levels in (0, 100, 6_000, 300_000)]
    found = outcomes(decoder.decode(values), 4)
    assert found[:2] == [{"id": 1}, {"id": 1}]
    assert [stage for stage, _ in found[2:]] == [DECODE, DECODE]
    names(found[2][1], "1,000")


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("avro", [TEN, fixed(400, logicalType="decimal", precision=10, scale=2)])
def test_a_decimal_may_have_bytes_that_are_no_digits(avro: dict[str, Any], *, at_once: bool) -> None:
    """As many as there are: of millions of real digits Python would take minutes to make a number."""
    size = avro.get("size", 2_000_000)
    numbers = [
        b"\xff" * (size - 1) + b"\x80",
        b"\0" * (size - 1) + b"\x05",
        b"\x7f" * size,
        b"\xff" + b"\x7f" * (size - 1),
    ]
    values = numbers if "size" in avro else [zigzag(size) + number for number in numbers]
    found = values_of(one_column(avro, DecimalType(10, 2), at_once=at_once).decode(values), 4)
    assert [str(number) for number in found[:2]] == ["-1.28", "0.05"]
    assert [(stage, message.partition(":")[0]) for stage, message in found[2:]] == [(FIT, "a")] * 2  # pyright: ignore[reportGeneralTypeIssues, reportUnknownMemberType, reportUnknownVariableType]


def test_a_decimal_that_nobody_wants_costs_a_record_nothing() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "many", "type": TEN}]
    schema = writer_schema("the schema", json.dumps({"type": "record", "name": "R", "fields": fields}))
    decoder = AvroDecoder(Schema(NestedField(1, "id", LongType(), required=False)), OneSchema(schema), at_once=False)
    assert outcomes(decoder.decode([b"\x02" + zigzag(2_000_000) + b"\x7f" * 2_000_000]), 1) == [{"id": 1}]

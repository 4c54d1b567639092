"""Avro records that are read at once come to the same as those read one by one, whatever their neighbours are."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetWriter, read_table
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.avro.types import Carriers
from calve.sink_core.records.avro.vectorised import reader
from calve.sink_core.records.columns.arrow import conform, file_schema
from calve.sink_core.records.decode.decoded import Decoded
from tests.fuzz import mutated
from tests.unit.records.avro.records import (
    COLOUR,
    DECIMAL_5,
    INFINITY,
    INTS,
    NAN,
    POINT,
    SPOILER,
    encoded,
    fixed,
    logical,
    one_column,
    record_of,
    values_of,
    without_logical,
    written_with,
    zigzag,
)
from tests.unit.records.decode.outcomes import outcomes

MIXED = record_of("long") | {
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": "double"}},
        {"name": "d", "type": ["null", POINT]},
    ]
}
MIXED_COLUMNS = Schema(
    NestedField(1, "a", IntegerType(), required=False),
    NestedField(2, "b", StringType(), required=True),
    NestedField(3, "c", ListType(5, FloatType(), element_required=False), required=False),
    NestedField(4, "d", StructType(NestedField(6, "x", LongType())), required=False),
)
MIXED_PARSED = fastavro.parse_schema(MIXED)
MIXED_RECORDS = st.fixed_dictionaries(
    {
        "a": st.sampled_from([0, -1, 2**31 - 1, 2**31, 2**63 - 1]),
        "b": st.one_of(st.none(), st.text(max_size=3)),
        "c": st.lists(st.sampled_from([0.5, 0.1, NAN]), max_size=3),
        "d": st.one_of(st.none(), st.fixed_dictionaries({"x": st.integers(-5, 5), "y": st.none()})),
    }
)


def mixed(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, MIXED_PARSED, record)
    return out.getvalue()


@settings(max_examples=60)
@given(values=st.lists(MIXED_RECORDS.map(mixed) | mutated(MIXED_RECORDS.map(mixed)), min_size=1, max_size=12))
def test_a_record_fares_alone_as_among_others(values: list[bytes]) -> None:
    decoder = AvroDecoder(MIXED_COLUMNS, OneSchema(writer_schema("the schema", json.dumps(MIXED))))
    alone = [repr(_whole(decoder.decode([value]), 1)[0]) for value in values]
    assert [repr(found) for found in _whole(decoder.decode(values), len(values))] == alone


INNER = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "x", "type": ["null", "double"]}, {"name": "y", "type": "bytes"}],
}
FLAT: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "unread", "type": ["string", "null"]},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": "boolean"},
        {"name": "d", "type": ["null", INNER]},
        {"name": "e", "type": COLOUR},
        {"name": "f", "type": fixed(3)},
        {"name": "g", "type": ["null", "float"]},
        {"name": "h", "type": logical("long", "timestamp-millis")},
        {"name": "i", "type": ["null", DECIMAL_5]},
        {"name": "never", "type": ["null", "string"]},
        {"name": "m", "type": ["null", fixed(90)]},
        {"name": "j", "type": ["null", {"type": "array", "items": ["null", "long"]}]},
        {"name": "k", "type": {"type": "map", "values": ["null", "D"]}},
        {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": "string"}}},
        {"name": "passed", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
INNER_TYPE = StructType(
    NestedField(6, "y", BinaryType()), NestedField(7, "x", FloatType()), NestedField(8, "z", LongType())
)
FLAT_COLUMNS = Schema(
    NestedField(1, "e", StringType(), required=True),
    NestedField(2, "a", IntegerType(), required=False),
    NestedField(3, "b", StringType(), required=False),
    NestedField(4, "c", BooleanType(), required=False),
    NestedField(5, "d", INNER_TYPE, required=False),
    NestedField(9, "f", FixedType(3), required=False),
    NestedField(10, "g", DoubleType(), required=False),
    NestedField(11, "h", TimestamptzType(), required=False),
    NestedField(13, "i", DecimalType(5, 2), required=False),
    NestedField(12, "never", LongType(), required=False),
    NestedField(23, "m", FixedType(90), required=False),
    NestedField(14, "j", ListType(15, IntegerType(), element_required=False), required=False),
    NestedField(
        16,
        "k",
        MapType(17, StringType(), 18, StructType(NestedField(19, "x", FloatType())), value_required=False),
        required=False,
    ),
    NestedField(
        20,
        "l",
        ListType(21, ListType(22, StringType(), element_required=True), element_required=True),
        required=False,
    ),
)
FLAT_PARSED = fastavro.parse_schema(without_logical(FLAT))
FLAT_RECORDS = st.fixed_dictionaries(
    {
        "a": st.sampled_from([0, -1, 63, 64, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)]),
        "unread": st.one_of(st.none(), st.text(max_size=3)),
        "b": st.one_of(st.none(), st.text(max_size=200)),
        "c": st.booleans(),
        "d": st.one_of(
            st.none(),
            st.fixed_dictionaries({"x": st.sampled_from([None, 0.5, 0.1, -0.0]), "y": st.binary(max_size=70)}),
        ),
        "e": st.sampled_from(["RED", "BLUE"]),
        "f": st.binary(min_size=3, max_size=3),
        "g": st.sampled_from([None, 1.5, INFINITY]),
        "h": st.sampled_from([0, -1, 10**12, 2**62]),
        "i": st.sampled_from([None, b"", b"\x7d", b"\xff\xff\x01", b"\x7f\xff\xff"]),
        "never": st.sampled_from([None] * 9 + ["x"]),
        "m": st.sampled_from([None, b"m" * 90]),
        "j": st.none() | st.lists(st.sampled_from([None, 0, -1, 2**31 - 1]), max_size=3),
        "k": st.dictionaries(
            st.text(max_size=2), st.none() | st.just({"x": 0.5, "y": b""}) | st.just({"x": None, "y": b"y"}), max_size=3
        ),
        "l": st.lists(st.lists(st.text(max_size=2), max_size=3), max_size=3),
        "passed": st.dictionaries(st.text(max_size=2), st.lists(st.integers(-5, 5), max_size=2), max_size=2),
    }
)


def flat(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, FLAT_PARSED, record)
    return out.getvalue()


PLAIN = {**FLAT, "fields": [field for field in FLAT["fields"] if field["name"] not in ("j", "k", "l", "passed")]}
"""Without arrays and maps, which programs of the kernel lack."""
PLAIN_PARSED = fastavro.parse_schema(without_logical(PLAIN))


def plain(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PLAIN_PARSED, record)
    return out.getvalue()


@settings(max_examples=75)
@given(values=st.lists(FLAT_RECORDS.map(flat), min_size=1, max_size=8), odd=mutated(FLAT_RECORDS.map(flat)))
def test_records_read_at_once_are_those_read_one_by_one(values: list[bytes], odd: bytes) -> None:
    _agree(FLAT, values, odd)


@settings(max_examples=75)
@given(values=st.lists(FLAT_RECORDS.map(plain), min_size=1, max_size=8), odd=mutated(FLAT_RECORDS.map(plain)))
def test_records_without_arrays_read_at_once_are_those_read_one_by_one(values: list[bytes], odd: bytes) -> None:
    _agree(PLAIN, values, odd)


def _agree(schema: dict[str, Any], values: list[bytes], odd: bytes) -> None:
    written = OneSchema(writer_schema("the schema", json.dumps(schema)))
    at_once, one_by_one = AvroDecoder(FLAT_COLUMNS, written), AvroDecoder(FLAT_COLUMNS, written, at_once=False)
    for batch in (values, [odd], [*values, odd], [odd, *values, SPOILER]):
        n = len(batch)
        assert repr(_whole(at_once.decode(batch), n)) == repr(_whole(one_by_one.decode(batch), n))


def reads_at_once(avro: Any, kind: IcebergType, values: list[bytes]) -> tuple[list[object], list[int]] | None:
    """Rows that are read at once, and the places of the others; None if all are to be read on their own."""
    schema = written_with(avro)
    assert schema.record is not None
    columns = file_schema(Schema(NestedField(1, "a", kind, required=False)))
    read = reader(schema, Carriers(schema).struct(schema.record["fields"], columns))
    assert read is not None
    found = read(values, 0)
    return None if found is None else ([row["a"] for row in found[0].to_pylist()], found[1])


def test_a_suspect_leaves_its_neighbours_at_once() -> None:
    values = [encoded("string", text) for text in ("a", "b", "c")]
    odd = [b"", values[0][:-1], values[0] + b"\0", b"\x02\xff", b"\x01", b"\xff" * 12]
    found = reads_at_once("string", StringType(), [values[0], *odd, values[1], values[2]])
    assert found == (["a", "b", "c"], [1, 2, 3, 4, 5, 6])


def test_arrays_within_arrays_are_read_one_by_one_if_they_are_long() -> None:
    inner: dict[str, Any] = {"type": "array", "items": "int"}
    avro, kind = {"type": "array", "items": inner}, ListType(2, ListType(3, LongType(), element_required=True), True)
    value = [list(range(100))] * 100
    assert values_of(one_column(avro, kind).decode([encoded(avro, value)]), 1) == [value]
    assert reads_at_once(avro, kind, [encoded(avro, value)]) is None
    assert reads_at_once(avro, kind, [encoded(avro, value[:9])]) == ([value[:9]], [])


def test_arrays_and_maps_are_read_at_once_if_they_are_short() -> None:
    array: dict[str, Any] = {"type": "array", "items": "int"}
    # Two blocks, the second of which says its size.
    in_blocks = zigzag(1) + zigzag(7) + zigzag(-2) + zigzag(2) + zigzag(8) + zigzag(9) + zigzag(0)
    values = [encoded(array, [1, 2]), in_blocks, encoded(array, []), encoded(array, list(range(300)))]
    values += [zigzag(2**62), zigzag(-(2**63)) + zigzag(1)]
    assert reads_at_once(array, INTS, values) == ([[1, 2], [7, 8, 9], []], [3, 4, 5])
    kind = MapType(2, StringType(), 3, LongType())
    entry = zigzag(1) + b"k" + zigzag(5)
    twice = [zigzag(1) + entry + zigzag(0), zigzag(2) + entry + entry + zigzag(0)]
    assert reads_at_once({"type": "map", "values": "int"}, kind, twice) == ([[("k", 5)]], [1])


def test_a_null_struct_is_none_the_worse_for_a_neighbour_that_does_not_fit() -> None:
    avro, kind = ["null", POINT], StructType(NestedField(2, "x", IntegerType()))
    wide = {**POINT, "fields": [{"name": "x", "type": "long"}]}
    values = [encoded(["null", wide], value) for value in ({"x": 2**31}, None, {"x": 1})]
    found = values_of(one_column(["null", wide], kind).decode(values), 3)
    assert (found[1], found[2]) == (None, {"x": 1})
    assert values_of(one_column(avro, kind).decode([encoded(avro, None)]), 1) == [None]


@pytest.mark.parametrize("values", [[None], [{"x": 1, "y": None}, None], [None, {"x": 1, "y": None}, None]])
@pytest.mark.parametrize("spoilers", [[], [SPOILER]])
def test_a_null_struct_with_a_required_field_can_be_written(values: list[object], spoilers: list[bytes]) -> None:
    avro, kind = ["null", POINT], StructType(NestedField(2, "x", IntegerType(), required=True))
    schema = Schema(NestedField(1, "a", kind, required=False))
    decoded = one_column(avro, kind).decode([*(encoded(avro, value) for value in values), *spoilers])
    file = io.BytesIO()
    with ParquetWriter(file, file_schema(schema)) as writer:
        writer.write_batch(conform(decoded.columns.columns, file_schema(schema)))
    assert [row["a"] for row in read_table(file).to_pylist()] == [value and {"x": 1} for value in values]


def _whole(decoded: Decoded, n: int) -> list[object]:
    """As `outcomes`; times as numbers, since Python's end with the year 9999."""
    plain = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in decoded.columns.schema]
    columns = [column.cast(kind) for column, kind in zip(decoded.columns.columns, plain, strict=True)]
    named = pa.RecordBatch.from_arrays(columns, decoded.columns.schema.names)
    return outcomes(replace(decoded, columns=named), n)

"""What becomes of an Avro record: its typed value, or an error that names the field, whatever its neighbours are."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

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
    DateType,
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from sink_core.decode.avro import AvroDecoder, OneSchema
from sink_core.decode.avro_at_once import reader
from sink_core.decode.avro_schema import WriterSchema, writer_schema
from sink_core.decode.avro_types import Carriers
from sink_core.decode.decoded import DECODE, FIT, Decoded
from sink_core.tables.arrow import conform, file_schema
from tests.fuzz import mutated
from tests.unit.decode.outcomes import outcomes

SPOILER = b""
"""No record: it is read on its own, its neighbours all at once."""
UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
NAN, INFINITY = float("nan"), float("inf")
WIDE_CONTEXT = Context(prec=60)
FLOAT_MAX = 3.4028234663852886e38


def logical(kind: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: object) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{size}", "size": size, **more}


DECIMAL_38 = logical("bytes", "decimal", precision=38, scale=10)
DECIMAL_5 = logical("bytes", "decimal", precision=5, scale=2)
FIXED_DECIMAL = fixed(16, logicalType="decimal", precision=38, scale=0)
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
}
POINT_TYPE = StructType(NestedField(2, "y", IntegerType()), NestedField(3, "x", LongType(), required=True))
INTS = ListType(2, LongType(), element_required=False)
REQUIRED_INTS = ListType(2, LongType(), element_required=True)
BY_NAME = MapType(2, StringType(), 3, DecimalType(5, 2), value_required=False)
WIDE = {"int": (-(2**31), -1, 0, 2**31 - 1), "long": (-(2**63), 2**31, 2**53 + 1, 2**63 - 1)}
NUMBERS = (0.0, -0.0, NAN, INFINITY, -INFINITY, 1.5, FLOAT_MAX)
TEXTS = ("", "text", "Größe € \N{GRINNING FACE}", "\0", "x" * 1_000_000)
MICROS = (0, -1, 1_717_149_600_123_456, 253_402_300_799_999_999, -62_135_596_800_000_001, 2**63 - 1, -(2**63))
LAST_DAY = 2_932_896  # 9999-12-31


def cases() -> list[tuple[Any, IcebergType, object, object]]:
    """Avro type, column, the plain value below any logical type, and what the column then holds."""
    grid: list[tuple[Any, IcebergType, object, object]] = []

    def add(avro: Any, kind: IcebergType, *values: object) -> None:
        grid.extend((avro, kind, value, value) for value in values)

    add("boolean", BooleanType(), True, False)
    add("int", IntegerType(), *WIDE["int"])
    add("int", LongType(), *WIDE["int"])
    add("long", LongType(), *WIDE["long"])
    add("long", IntegerType(), 2**31 - 1, -(2**31))
    add("float", FloatType(), *NUMBERS)
    add("float", DoubleType(), *NUMBERS)
    add("double", DoubleType(), *NUMBERS, 0.1, 1e308)
    add("double", FloatType(), *NUMBERS)
    add("string", StringType(), *TEXTS)
    add("bytes", BinaryType(), b"", b"\x00\xff", b"x" * 1_000_000)
    add("bytes", FixedType(2), b"ab")
    add(fixed(2), FixedType(2), b"\x00\xff")
    add(fixed(2), BinaryType(), b"\x00\xff")
    add(COLOUR, StringType(), "RED", "BLUE")
    add(logical("string", "uuid"), StringType(), UUID_TEXT)
    add(["null", "long"], LongType(), None, 2**63 - 1)
    add(["int", "long"], LongType(), 1, 2**62)
    add({"type": "array", "items": ["null", "int"]}, INTS, [], [1, None, 3])
    grid += [
        ("int", DoubleType(), 2**31 - 1, float(2**31 - 1)),
        ("long", DoubleType(), 2**53, float(2**53)),
        ("long", DecimalType(38, 10), 7, Decimal(7)),
        (logical("string", "uuid"), UUIDType(), UUID_TEXT, UUID(UUID_TEXT).bytes),
        (fixed(16, logicalType="uuid"), UUIDType(), UUID(UUID_TEXT).bytes, UUID(UUID_TEXT).bytes),
        (POINT, POINT_TYPE, {"x": 1, "y": None}, {"y": None, "x": 1}),
        (["null", POINT], POINT_TYPE, None, None),
        (
            {"type": "map", "values": "int"},
            MapType(2, StringType(), 3, LongType()),
            {"b": 1, "": 2},
            [("b", 1), ("", 2)],
        ),
        (
            {"type": "map", "values": ["null", DECIMAL_5]},
            BY_NAME,
            {"a": b"\x7d", "b": None},
            [("a", Decimal("1.25")), ("b", None)],
        ),
        (
            {"type": "array", "items": POINT},
            ListType(2, StructType(NestedField(3, "x", IntegerType()))),
            [{"x": 7, "y": 1}],
            [{"x": 7}],
        ),
    ]
    for digits in ("0", "1.25", "-1.25", "999.99", "-999.99"):
        grid.append((DECIMAL_5, DecimalType(5, 2), unscaled(digits, 2), Decimal(digits)))
        grid.append((DECIMAL_5, DecimalType(38, 4), unscaled(digits, 2), Decimal(digits)))
    for number in (10**38 - 1, -(10**38) + 1, 0, -1):
        grid.append((FIXED_DECIMAL, DecimalType(38, 0), number.to_bytes(16, "big", signed=True), Decimal(number)))
        grid.append(
            (DECIMAL_38, DecimalType(38, 10), unscaled(str(number), 0), Decimal(number).scaleb(-10, WIDE_CONTEXT))
        )
    return grid


def unscaled(digits: str, scale: int) -> bytes:
    number = int(Decimal(digits).scaleb(scale, WIDE_CONTEXT))
    return number.to_bytes(17, "big", signed=True)


def zigzag(number: int) -> bytes:
    """A number as Avro writes int and long."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def without_logical(avro: Any) -> Any:
    if isinstance(avro, list):
        return [without_logical(part) for part in avro]
    if isinstance(avro, dict):
        return {k: without_logical(v) for k, v in avro.items() if k not in ("logicalType", "precision", "scale")}
    return avro


def record_of(avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": avro}]}


def encoded(avro: Any, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record_of(without_logical(avro))), {"a": value})
    return out.getvalue()


def written_with(avro: Any) -> WriterSchema:
    return writer_schema("the schema", json.dumps(record_of(avro)))


def one_column(avro: Any, kind: IcebergType, *, required: bool = False, at_once: bool = True) -> AvroDecoder:
    columns = Schema(NestedField(1, "a", kind, required=required))
    return AvroDecoder(columns, OneSchema(written_with(avro)), at_once=at_once)


def values_of(decoded: Decoded, n: int) -> list[object]:
    """As `outcomes`, of the only column."""
    return [row["a"] if isinstance(row, dict) else row for row in outcomes(decoded, n)]


def same(found: object, expected: object) -> bool:
    """Equal, not a number included, the sign of zero too."""
    if isinstance(found, float) and isinstance(expected, float):
        if math.isnan(expected):
            return math.isnan(found)
        return (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))
    return found == expected and type(found) is type(expected)


@pytest.mark.parametrize(("avro", "kind", "value", "expected"), cases(), ids=lambda value: str(value)[:40])
def test_a_value_arrives_as_its_type(avro: Any, kind: IcebergType, value: object, expected: object) -> None:
    data = encoded(avro, value)
    for at_once in (True, False):
        decoder = one_column(avro, kind, at_once=at_once)
        for values in ([data], [data, SPOILER]):
            assert same(values_of(decoder.decode(values), len(values))[0], expected)


@pytest.mark.parametrize("micros", MICROS)
@pytest.mark.parametrize("zone", ["", "local-"])
def test_timestamps_keep_every_microsecond_however_far_away(micros: int, zone: str) -> None:
    kind = TimestampType() if zone else TimestamptzType()
    for unit, value in (("micros", micros), ("millis", micros // 1000)):
        avro = logical("long", f"{zone}timestamp-{unit}")
        decoded = one_column(avro, kind).decode([encoded(avro, value)])
        expected = value if unit == "micros" else value * 1000
        if -(2**63) <= expected < 2**63:
            assert decoded.columns.column(0).cast("int64").to_pylist() == [expected]
        else:
            assert [bad.stage for bad in decoded.bad] == [FIT]


def test_days_and_times_keep_their_value() -> None:
    days = logical("int", "date")
    values = [encoded(days, day) for day in (0, -719_162, LAST_DAY, 2**31 - 1, -(2**31))]
    found = one_column(days, DateType()).decode(values)
    assert found.columns.column(0).cast("int32").to_pylist() == [0, -719_162, LAST_DAY, 2**31 - 1, -(2**31)]
    for unit, base, factor in (("millis", "int", 1000), ("micros", "long", 1)):
        avro = logical(base, f"time-{unit}")
        last = 86_400_000_000 // factor - 1
        found = one_column(avro, TimeType()).decode([encoded(avro, value) for value in (0, last)])
        assert found.columns.column(0).cast("int64").to_pylist() == [0, last * factor]


BAD: list[tuple[Any, IcebergType, object, str]] = [
    ("long", IntegerType(), 2**31, "a: Integer value 2147483648 not in range"),
    ("long", IntegerType(), -(2**31) - 1, "a: Integer value -2147483649 not in range"),
    ("long", DoubleType(), 2**53 + 1, "a: "),
    ("double", FloatType(), 0.1, "a: 0.1 is not exactly a float"),
    ("double", FloatType(), 1e300, "a: 1e+300 is not exactly a float"),
    ("long", BooleanType(), 1, "a: Avro's long doesn't fit boolean"),
    ("boolean", LongType(), True, "a: Avro's boolean doesn't fit long"),
    ("string", LongType(), "1", "a: Avro's string doesn't fit long"),
    ("long", StringType(), 1, "a: Avro's long doesn't fit string"),
    ("bytes", StringType(), b"x", "a: Avro's bytes doesn't fit string"),
    ("string", BinaryType(), "x", "a: Avro's string doesn't fit binary"),
    ("string", UUIDType(), UUID_TEXT, "a: Avro's string doesn't fit uuid"),
    (logical("string", "uuid"), UUIDType(), "no", "a: 'no' is not a UUID"),
    ("bytes", FixedType(2), b"abc", "a: "),
    (fixed(3), FixedType(2), b"abc", "a: "),
    (DECIMAL_5, DecimalType(5, 1), unscaled("1.25", 2), "a: "),
    (DECIMAL_5, DecimalType(4, 2), unscaled("999.99", 2), "a: "),
    (DECIMAL_5, DecimalType(5, 2), (10**30).to_bytes(17, "big"), "a: "),
    (DECIMAL_5, DoubleType(), unscaled("1.25", 2), "a: Avro's decimal(5, 2) doesn't fit double"),
    (logical("long", "timestamp-millis"), TimestampType(), 1, "a: Avro's timestamp-millis doesn't fit timestamp"),
    (logical("long", "local-timestamp-micros"), TimestamptzType(), 1, "a: Avro's local-timestamp-micros doesn't fit"),
    (logical("long", "timestamp-millis"), TimestamptzType(), 2**62, "a: Casting"),
    (logical("long", "timestamp-nanos"), TimestamptzType(), 1_001, "a: Casting"),
    (logical("int", "date"), LongType(), 1, "a: Avro's date doesn't fit long"),
    ("int", DateType(), 1, "a: Avro's int doesn't fit date"),
    (logical("int", "time-millis"), TimeType(), 86_400_000, "a: 86400000000 µs is no time of a day"),
    (logical("long", "time-micros"), TimeType(), -1, "a: -1 µs is no time of a day"),
    (["int", "string"], LongType(), 1, "a: Avro's a union of int, string doesn't fit long"),
    (POINT, LongType(), {"x": 1, "y": 1}, "a: Avro's record doesn't fit long"),
    ("long", POINT_TYPE, 1, "a: Avro's long doesn't fit a struct"),
    ({"type": "array", "items": "string"}, INTS, ["x"], "a.element: Avro's string doesn't fit long"),
    ({"type": "map", "values": "string"}, BY_NAME, {"k": "x"}, "a.value: Avro's string doesn't fit decimal"),
    ({"type": "array", "items": ["null", "long"]}, REQUIRED_INTS, [None], "a.element: required"),
]  # fmt: skip


@pytest.mark.parametrize(("avro", "kind", "value", "message"), BAD, ids=lambda value: str(value)[:40])
def test_a_value_that_does_not_fit_is_bad_and_names_its_field(
    avro: Any, kind: IcebergType, value: object, message: str
) -> None:
    data = encoded(avro, value)
    [found] = values_of(one_column(avro, kind).decode([data]), 1)
    assert values_of(one_column(avro, kind, at_once=False).decode([data, SPOILER]), 2)[0] == found
    assert isinstance(found, tuple)
    assert found[0] == FIT
    assert str(found[1]).startswith(message)
    assert "\n" not in str(found[1])


def test_a_field_that_cannot_fit_spoils_only_the_records_that_have_it() -> None:
    avro = ["null", "string"]
    found = values_of(one_column(avro, LongType()).decode([encoded(avro, v) for v in (None, "x", None)]), 3)
    assert found == [None, (FIT, "a: Avro's string doesn't fit long"), None]


def test_fields_match_by_name_and_a_required_one_must_be_there() -> None:
    schema = Schema(NestedField(1, "new", LongType(), required=False), NestedField(2, "a", LongType(), required=False))
    decoded = AvroDecoder(schema, OneSchema(written_with("long"))).decode([encoded("long", 1)])
    assert decoded.columns.to_pylist() == [{"new": None, "a": 1}]
    needed = AvroDecoder(Schema(NestedField(1, "new", LongType(), required=True)), OneSchema(written_with("long")))
    [bad] = needed.decode([encoded("long", 1)]).bad
    assert (bad.stage, bad.message) == (FIT, "new: required, but missing or null")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "truncated, or not written with the schema: "),
        (encoded("string", "text")[:-1], "truncated, or not written with the schema: "),
        (encoded("string", "text") + b"\0\0", "not written with the schema: 2 bytes are left over"),
        (zigzag(2) + b"\xff\xff", "truncated, or not written with the schema: UnicodeDecodeError"),
        (zigzag(2**40), "truncated, or not written with the schema: "),
    ],
)
def test_bytes_that_are_no_such_record_are_bad(value: bytes, message: str) -> None:
    good = encoded("string", "text")
    found = values_of(one_column("string", StringType()).decode([good, value, good]), 3)
    assert (found[0], found[2]) == ("text", "text")
    assert isinstance(found[1], tuple)
    assert found[1][0] == DECODE
    assert str(found[1][1]).startswith(message)


def test_nothing_gives_nothing() -> None:
    assert values_of(one_column("long", LongType()).decode([]), 0) == []


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


@settings(max_examples=150)
@given(values=st.lists(FLAT_RECORDS.map(flat), min_size=1, max_size=8), odd=mutated(FLAT_RECORDS.map(flat)))
def test_records_read_at_once_are_those_read_one_by_one(values: list[bytes], odd: bytes) -> None:
    written = OneSchema(writer_schema("the schema", json.dumps(FLAT)))
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


def test_a_record_within_itself_is_read_as_far_as_the_column_goes() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "next", "type": ["null", "N"]}]
    node: dict[str, Any] = {"type": "record", "name": "N", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(node), {"a": 1, "next": {"a": 2, "next": None}})
    columns = Schema(NestedField(1, "next", StructType(NestedField(2, "a", LongType())), required=False))
    decoded = AvroDecoder(columns, OneSchema(writer_schema("s", json.dumps(node)))).decode([out.getvalue()])
    assert decoded.columns.to_pylist() == [{"next": {"a": 2}}]


def _whole(decoded: Decoded, n: int) -> list[object]:
    """As `outcomes`; times as numbers, since Python's end with the year 9999."""
    plain = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in decoded.columns.schema]
    columns = [column.cast(kind) for column, kind in zip(decoded.columns.columns, plain, strict=True)]
    named = pa.RecordBatch.from_arrays(columns, decoded.columns.schema.names)
    return outcomes(replace(decoded, columns=named), n)


@pytest.mark.parametrize("text", ["", "{", '{"type": "record"}', '{"type": "nothing"}', '"geo.City"', "[1]", "7"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an Avro schema"):
        writer_schema("s", text)


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "F", "size": 0}, {**POINT, "fields": [{"name": "n", "type": "null"}]}]
)
def test_a_schema_by_which_a_few_bytes_are_a_list_without_end_is_refused(items: object) -> None:
    endless = ["null", {"type": "array", "items": items}]
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": endless}]})
    with pytest.raises(ValueError, match=r"not an Avro schema: .*an array of .*, which takes no bytes"):
        writer_schema("s", text)

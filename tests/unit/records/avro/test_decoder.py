"""What becomes of an Avro record: its typed value, or an error that names the field, whatever its neighbours are."""

from __future__ import annotations

import io
import json
import math
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
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

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.decode.decoded import DECODE, FIT
from tests.codes import Naming, names
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
    values_of,
    written_with,
    zigzag,
)

UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
WIDE_CONTEXT = Context(prec=60)
FLOAT_MAX = 3.4028234663852886e38


DECIMAL_38 = logical("bytes", "decimal", precision=38, scale=10)
FIXED_DECIMAL = fixed(16, logicalType="decimal", precision=38, scale=0)
FINE_43, FINEST = (logical("bytes", "decimal", precision=scale, scale=scale) for scale in (43, 10**9))
POINT_TYPE = StructType(NestedField(2, "y", IntegerType()), NestedField(3, "x", LongType(), required=True))
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
    grid.append((FINE_43, DecimalType(20, 5), unscaled("0.00001", 43)[1:], Decimal("0.00001")))
    grid.append((FINE_43, DecimalType(20, 0), b"\0", Decimal(0)))
    for number in (10**38 - 1, -(10**38) + 1, 0, -1):
        grid.append((FIXED_DECIMAL, DecimalType(38, 0), number.to_bytes(16, "big", signed=True), Decimal(number)))
        grid.append(
            (DECIMAL_38, DecimalType(38, 10), unscaled(str(number), 0), Decimal(number).scaleb(-10, WIDE_CONTEXT))
        )
    return grid


def unscaled(digits: str, scale: int) -> bytes:
    number = int(Decimal(digits).scaleb(scale, WIDE_CONTEXT))
    return number.to_bytes(17, "big", signed=True)


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


BAD: list[tuple[Any, IcebergType, object, Naming]] = [
    ("long", IntegerType(), 2**31, Naming(2147483648, of="a")),
    ("long", IntegerType(), -(2**31) - 1, Naming(-2147483649, of="a")),
    ("long", DoubleType(), 2**53 + 1, Naming(of="a")),
    ("double", FloatType(), 0.1, Naming(0.1, "float", of="a")),
    ("double", FloatType(), 1e300, Naming("1e+300", "float", of="a")),
    ("long", BooleanType(), 1, Naming("long", "boolean", of="a")),
    ("boolean", LongType(), True, Naming("boolean", "long", of="a")),
    ("string", LongType(), "1", Naming("string", "long", of="a")),
    ("long", StringType(), 1, Naming("long", "string", of="a")),
    ("bytes", StringType(), b"x", Naming("bytes", "string", of="a")),
    ("string", BinaryType(), "x", Naming("string", "binary", of="a")),
    ("string", UUIDType(), UUID_TEXT, Naming("string", "uuid", of="a")),
    (logical("string", "uuid"), UUIDType(), "no", Naming("'no'", "UUID", of="a")),
    ("bytes", FixedType(2), b"abc", Naming(of="a")),
    (fixed(3), FixedType(2), b"abc", Naming(of="a")),
    (DECIMAL_5, DecimalType(5, 1), unscaled("1.25", 2), Naming(of="a")),
    (DECIMAL_5, DecimalType(4, 2), unscaled("999.99", 2), Naming(of="a")),
    (DECIMAL_5, DecimalType(5, 2), (10**30).to_bytes(17, "big"), Naming(of="a")),
    (FINE_43, DecimalType(20, 4), b"\1", Naming(of="a")),
    (FINEST, DecimalType(20, 4), b"\1", Naming(of="a")),
    (DECIMAL_5, DoubleType(), unscaled("1.25", 2), Naming("decimal(5, 2)", "double", of="a")),
    (logical("long", "timestamp-millis"), TimestampType(), 1, Naming("timestamp-millis", "timestamp", of="a")),
    (logical("long", "local-timestamp-micros"), TimestamptzType(), 1, Naming("local-timestamp-micros", of="a")),
    (logical("long", "timestamp-millis"), TimestamptzType(), 2**62, Naming(of="a")),
    (logical("long", "timestamp-nanos"), TimestamptzType(), 1_001, Naming(of="a")),
    (logical("int", "date"), LongType(), 1, Naming("date", "long", of="a")),
    ("int", DateType(), 1, Naming("int", "date", of="a")),
    (logical("int", "time-millis"), TimeType(), 86_400_000, Naming("86400000000 µs", of="a")),
    (logical("long", "time-micros"), TimeType(), -1, Naming("-1 µs", of="a")),
    (["int", "string"], LongType(), 1, Naming("int, string", "long", of="a")),
    (POINT, LongType(), {"x": 1, "y": 1}, Naming("record", "long", of="a")),
    ("long", POINT_TYPE, 1, Naming("long", "struct", of="a")),
    ({"type": "array", "items": "string"}, INTS, ["x"], Naming("string", "long", of="a.element")),
    ({"type": "map", "values": "string"}, BY_NAME, {"k": "x"}, Naming("string", "(5, 2)", of="a.value")),
    ({"type": "array", "items": ["null", "long"]}, REQUIRED_INTS, [None], Naming(of="a.element")),
]  # fmt: skip


@pytest.mark.parametrize(("avro", "kind", "value", "said"), BAD, ids=lambda value: str(value)[:40])
def test_a_value_that_does_not_fit_is_bad_and_names_its_field(
    avro: Any, kind: IcebergType, value: object, said: Naming
) -> None:
    data = encoded(avro, value)
    [found] = values_of(one_column(avro, kind).decode([data]), 1)
    assert values_of(one_column(avro, kind, at_once=False).decode([data, SPOILER]), 2)[0] == found
    assert found == (FIT, said)
    assert isinstance(found, tuple)
    assert "\n" not in str(found[1])


def test_a_field_that_cannot_fit_spoils_only_the_records_that_have_it() -> None:
    avro = ["null", "string"]
    found = values_of(one_column(avro, LongType()).decode([encoded(avro, v) for v in (None, "x", None)]), 3)
    assert found == [None, (FIT, Naming("string", "long", of="a")), None]


def test_fields_match_by_name_and_a_required_one_must_be_there() -> None:
    schema = Schema(NestedField(1, "new", LongType(), required=False), NestedField(2, "a", LongType(), required=False))
    decoded = AvroDecoder(schema, OneSchema(written_with("long"))).decode([encoded("long", 1)])
    assert decoded.columns.to_pylist() == [{"new": None, "a": 1}]
    needed = AvroDecoder(Schema(NestedField(1, "new", LongType(), required=True)), OneSchema(written_with("long")))
    [bad] = needed.decode([encoded("long", 1)]).bad
    assert (bad.stage, bad.message) == (FIT, Naming(of="new"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", Naming("the schema")),
        (encoded("string", "text")[:-1], Naming("the schema")),
        (encoded("string", "text") + b"\0\0", Naming("the schema", 2)),
        (zigzag(2) + b"\xff\xff", Naming("the schema", "UnicodeDecodeError")),
        (zigzag(2**40), Naming("the schema")),
    ],
)
def test_bytes_that_are_no_such_record_are_bad(value: bytes, said: Naming) -> None:
    good = encoded("string", "text")
    found = values_of(one_column("string", StringType()).decode([good, value, good]), 3)
    assert found == ["text", (DECODE, said), "text"]


def test_nothing_gives_nothing() -> None:
    assert values_of(one_column("long", LongType()).decode([]), 0) == []


def test_a_record_within_itself_is_read_as_far_as_the_column_goes() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "next", "type": ["null", "N"]}]
    node: dict[str, Any] = {"type": "record", "name": "N", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(node), {"a": 1, "next": {"a": 2, "next": None}})
    columns = Schema(NestedField(1, "next", StructType(NestedField(2, "a", LongType())), required=False))
    decoded = AvroDecoder(columns, OneSchema(writer_schema("s", json.dumps(node)))).decode([out.getvalue()])
    assert decoded.columns.to_pylist() == [{"next": {"a": 2}}]


@pytest.mark.parametrize("text", ["", "{", '{"type": "record"}', '{"type": "nothing"}', '"geo.City"', "[1]", "7"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\bAvro\b"):
        writer_schema("s", text)


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ("null", "null"),
        ({"type": "fixed", "name": "F", "size": 0}, "fixed(0)"),
        ({**POINT, "fields": [{"name": "n", "type": "null"}]}, "record"),
    ],
)
def test_a_schema_by_which_a_few_bytes_are_a_list_without_end_is_refused(items: object, named: str) -> None:
    endless = ["null", {"type": "array", "items": items}]
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": endless}]})
    with pytest.raises(ValueError, match=r"\bAvro\b") as raised:
        writer_schema("s", text)
    names(str(raised.value), "array", named)

"""What becomes of a record: its typed value, or an error that names the field, whatever its neighbours are."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
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

from calve.sink_core.records.columns.arrow import conform, file_schema
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.decode.decoded import DECODE, FIT, Decoded
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming
from tests.fuzz import mutated

UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
POINT = StructType(NestedField(2, "x", LongType(), required=True), NestedField(3, "y", LongType()))
DATES = ListType(2, DateType(), element_required=False)
REQUIRED_DATES = ListType(2, DateType(), element_required=True)
PRICES = MapType(2, StringType(), 3, DecimalType(9, 2), value_required=False)
BY_NUMBER = MapType(2, LongType(), 3, ListType(4, UUIDType(), element_required=False), value_required=True)
MAPS_WITHIN = ListType(2, StructType(NestedField(3, "m", MapType(4, DateType(), 5, BooleanType()))))


def one_column(kind: IcebergType, *, required: bool = False) -> JsonDecoder:
    return JsonDecoder(Schema(NestedField(1, "a", kind, required=required)))


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    decoded.columns.validate(full=True)
    return decoded.columns.to_pylist()


def outcomes(decoded: Decoded, n: int) -> list[object]:
    """For each of n values, its row or (stage, message)."""
    bad = {value.index: (value.stage, value.message) for value in decoded.bad}
    good = decoded.good if decoded.good is not None else [i for i in range(n) if i not in bad]
    assert sorted([*good, *bad]) == list(range(n))
    found = bad | dict(zip(good, rows(decoded), strict=True))
    return [found[i] for i in range(n)]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (BooleanType(), "true", True),
        (IntegerType(), "-2147483648", -(2**31)),
        (LongType(), "9223372036854775807", 2**63 - 1),
        (FloatType(), "1.5", 1.5),
        (DoubleType(), "1e3", 1000.0),
        (DoubleType(), "7", 7.0),
        (DoubleType(), "Infinity", float("inf")),
        (FloatType(), "-Inf", float("-inf")),
        (DecimalType(5, 2), "1.25", Decimal("1.25")),
        (DecimalType(5, 2), '"1.25"', Decimal("1.25")),
        (
            DecimalType(38, 10),
            '"1234567890123456789012345678.0123456789"',
            Decimal("1234567890123456789012345678.0123456789"),
        ),
        (StringType(), '"Größe \\u20ac \\ud83d\\ude00"', "Größe € 😀"),
        (StringType(), '"  "', "  "),
        (DateType(), '"2024-02-29"', date(2024, 2, 29)),
        (TimeType(), '"23:59:59.123456"', time(23, 59, 59, 123456)),
        (TimeType(), '"07:05"', time(7, 5)),
        (TimestampType(), '"2024-05-31T10:00:00.123456"', datetime(2024, 5, 31, 10, 0, 0, 123456)),  # noqa: DTZ001
        (TimestampType(), '"2024-05-31 10:00:00"', datetime(2024, 5, 31, 10)),  # noqa: DTZ001
        (TimestamptzType(), '"2024-05-31T10:00:00Z"', datetime(2024, 5, 31, 10, tzinfo=UTC)),
        (TimestamptzType(), '"2024-05-31T10:00:00+02:00"', datetime(2024, 5, 31, 8, tzinfo=UTC)),
        (UUIDType(), f'"{UUID_TEXT.upper()}"', UUID(UUID_TEXT).bytes),
        (BinaryType(), '"AAH/"', b"\x00\x01\xff"),
        (BinaryType(), '""', b""),
        (FixedType(2), '"AAE="', b"\x00\x01"),
        (POINT, '{"x": 1, "z": [1]}', {"x": 1, "y": None}),
        (DATES, '["2024-01-01", null]', [date(2024, 1, 1), None]),
        (PRICES, '{"b": 1.10, "a": null}', [("b", Decimal("1.10")), ("a", None)]),
        (BY_NUMBER, f'{{"-7": ["{UUID_TEXT}", null], "8": []}}', [(-7, [UUID(UUID_TEXT).bytes, None]), (8, [])]),
        (MAPS_WITHIN, '[{"m": {"2024-01-01": true}}, {"m": null}]', [{"m": [(date(2024, 1, 1), True)]}, {"m": None}]),
        (StringType(), "null", None),
        (PRICES, "null", None),
        (POINT, "null", None),
    ],
)
def test_a_value_arrives_as_its_type(kind: IcebergType, text: str, expected: object) -> None:
    assert rows(one_column(kind).decode([f'{{"a": {text}}}'.encode()])) == [{"a": expected}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BooleanType(), "1"),
        (BooleanType(), '"true"'),
        (IntegerType(), "2147483648"),
        (LongType(), '"1"'),
        (LongType(), "true"),
        (LongType(), "9223372036854775808"),
        (FloatType(), "1e39"),
        (FloatType(), "-1e39"),
        (DecimalType(5, 2), "1.255"),
        (DecimalType(5, 2), "1234.5"),
        (StringType(), "5"),
        (StringType(), "{}"),
        (DateType(), '"2023-02-29"'),
        (DateType(), '"2024-05-31T00:00:00"'),
        (DateType(), "19874"),
        (TimeType(), '"24:00"'),
        (TimeType(), '"10:00Z"'),
        (TimeType(), '"10:00:00.1234567"'),
        (TimestampType(), '"2024-05-31T10:00:00Z"'),
        (TimestampType(), '"2024-05-31T10:00:00.1234567"'),
        (TimestampType(), "1717149600000"),
        (TimestamptzType(), '"2024-05-31T10:00:00"'),
        (UUIDType(), f'"{{{UUID_TEXT}}}"'),
        (UUIDType(), f'"{UUID_TEXT.replace("-", "")}"'),
        (BinaryType(), '"AAH_"'),
        (BinaryType(), '"AAE"'),
        (FixedType(2), '"AAEC"'),
        (POINT, '{"y": 1}'),
        (POINT, "[1]"),
        (DATES, '"2024-01-01"'),
        (REQUIRED_DATES, '["2024-01-01", null]'),
        (PRICES, '[{"key": "a", "value": 1}]'),
        (PRICES, '{"a": 1.255}'),
        (BY_NUMBER, '{"x": []}'),
        (BY_NUMBER, '{"1},{2": []}'),
        (BY_NUMBER, '{"1": null}'),
    ],
)
def test_what_would_lose_or_guess_is_an_error_naming_the_field(kind: IcebergType, text: str) -> None:
    decoded = one_column(kind).decode([f'{{"a": {text}}}'.encode()])
    assert rows(decoded) == []
    assert [(value.index, value.stage) for value in decoded.bad] == [(0, FIT)]
    assert decoded.bad[0].message.startswith(("a:", "a."))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"   ",
        b"null",
        b"5",
        b"[]",
        b'[{"a": 1}]',
        b"{",
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": 1,}',
        b'{"a": 01}',
        b"{'a': 1}",
        b'{"a": 1}{"a": 2}',
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1} x {"a": 2}',
        b'{"a": 1}\x00',
        b'{"a": 1}\x00{"a": 2}',
        b'{"b": "\x00"}',
        b'{"b": 1e400}',
        b'{"b": "line\nfeed"}',
        b'{"b": "\xff"}',
        b'{"\xff": 1, "a": 1}',
        b'{"b": "\xed\xa0\x80"}',
        b'{"b": "\\ud800"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": 1, "b": "}',
        b'{"a": {"b": 1}',
    ],
)
def test_what_is_not_one_json_object_goes_to_the_dead_letters_alone(value: bytes) -> None:
    decoded = one_column(LongType()).decode([b'{"a": 1}', value, b'{"a": 3}'])
    assert rows(decoded) == [{"a": 1}, {"a": 3}]
    assert (decoded.good, [v.index for v in decoded.bad]) == ([0, 2], [1])
    assert decoded.bad[0].stage == DECODE
    assert 0 < len(decoded.bad[0].message) <= 200


def test_records_cannot_join_hands_across_their_border() -> None:
    values = [b'{"a": 1', b', "a": 2}', b'{"a": "x}', b'{"y"}', b'{"a": 1}{"a": 2}\x00}', b'{"a": 4}']
    decoded = one_column(LongType()).decode(values)
    assert rows(decoded) == [{"a": 4}]
    assert [value.index for value in decoded.bad] == [0, 1, 2, 3, 4]


def test_white_space_and_unknown_fields_do_not_matter() -> None:
    values = [b' \r\n\t{"a":\n1}\n', b'{"b": {"a": [1, {"a": "x"}]}, "b": 2, "a": 2}', b"{}"]
    assert rows(one_column(LongType()).decode(values)) == [{"a": 1}, {"a": 2}, {"a": None}]


@pytest.mark.parametrize("nested", [b"[" * 200_000 + b"]" * 200_000, b'{"b":' * 200_000 + b"1" + b"}" * 200_000])
@pytest.mark.parametrize("kind", [LongType(), POINT, DATES, PRICES])
def test_hostile_nesting_harms_nobody(kind: IcebergType, nested: bytes) -> None:
    decoded = one_column(kind).decode([b'{"a": null}', b'{"a": ' + nested + b"}", b'{"b": null}'])
    assert rows(decoded) == [{"a": None}, {"a": None}]
    assert [value.index for value in decoded.bad] == [1]


@pytest.mark.parametrize("kind", [LongType(), DecimalType(9, 2), IntegerType()])
def test_the_field_of_a_number_of_any_length_is_named(kind: IcebergType) -> None:
    decoded = one_column(kind).decode([b'{"a":' + b"9" * 100_000 + b"}"])
    assert [(bad.stage, bad.message[:3]) for bad in decoded.bad] == [(FIT, "a: ")]


@pytest.mark.parametrize(
    ("given", "stored"), [("1.0", 1), ("-2e3", -2000), ("5.00", 5), ("12E-1", None), ("1e400", None), ("-0.0", 0)]
)
@pytest.mark.parametrize("neighbours", [0, 3, 200])
def test_a_whole_number_is_an_integer_however_it_is_written(given: str, stored: int | None, neighbours: int) -> None:
    values = [b'{"a": 7}'] * neighbours + [b'{"a": ' + given.encode() + b', "b": {"a": 1.0}}']
    decoded = one_column(LongType()).decode(values)
    expected = [{"a": 7}] * neighbours + ([] if stored is None else [{"a": stored}])
    assert rows(decoded) == expected
    assert [bad.index for bad in decoded.bad] == ([neighbours] if stored is None else [])


def test_a_number_that_would_fit_otherwise_is_not_what_is_told_of_a_record() -> None:
    schema = schema_of({"a": "long", "b": "int"})
    [bad] = JsonDecoder(schema).decode([b'{"a": 1.0, "b": 2147483648}']).bad
    assert bad.message.startswith("b: ")
    values = [b'{"a": 1.0, "b": null}', b'{"a": 1.0, "b": 1.5}']
    assert [each.message[:3] for each in JsonDecoder(schema).decode(values).bad] == ["b: "]


def test_a_decimal_of_many_digits_is_not_what_is_told_of_a_record() -> None:
    schema = schema_of({"a": "decimal(38, 10)", "b": "decimal(9, 2)"})
    [bad] = JsonDecoder(schema).decode([b'{"a": 1234567890123456789012345678.0123456789, "b": 0.001}']).bad
    assert bad.message.startswith("b: ")


def test_whole_numbers_are_integers_at_any_depth_and_nowhere_else() -> None:
    inner = StructType(NestedField(2, "i", IntegerType(), required=False))
    schema = Schema(
        NestedField(1, "s", inner, required=False),
        NestedField(3, "l", ListType(4, LongType(), element_required=False), required=False),
        NestedField(5, "m", MapType(6, StringType(), 7, LongType(), value_required=False), required=False),
    )
    whole = JsonDecoder(schema).decode([b'{"s": {"i": 1.0}, "l": [2.0, null, 3], "m": {"k": 4e0}}'])
    assert rows(whole) == [{"s": {"i": 1}, "l": [2, None, 3], "m": [("k", 4)]}]
    # What no column takes is judged as ever, and too large a number too.
    beyond = [b'{"l": [1.0], "x": 1e999}', b'{"l": [9223372036854775808.0]}', b'{"s": {"i": 2147483648.0}}']
    without_map = Schema(*schema.fields[:2])
    assert len(JsonDecoder(without_map).decode(beyond).bad) == 3


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
def test_zeros_for_nanoseconds_lose_nothing(zone: str) -> None:
    kind = TimestamptzType() if zone else TimestampType()
    texts = [f"2024-01-01T00:00:00.123456{rest}{zone}" for rest in ("", "0", "000", "001", "0000")]
    decoded = one_column(kind).decode([json.dumps({"a": text}).encode() for text in texts])
    assert len({str(row) for row in rows(decoded)}) == 1
    assert [bad.index for bad in decoded.bad] == [3, 4]
    if not zone:
        times = [json.dumps({"a": f"10:11:12.123456{rest}"}).encode() for rest in ("000", "001")]
        assert [bad.index for bad in one_column(TimeType()).decode(times).bad] == [1]


def test_a_required_field_that_is_missing_or_null_is_named() -> None:
    decoded = one_column(LongType(), required=True).decode([b'{"a": 1}', b"{}", b'{"a": null}'])
    assert rows(decoded) == [{"a": 1}]
    assert [value.message for value in decoded.bad] == [Naming(of="a")] * 2


def test_required_parts_of_a_missing_struct_are_not_missed() -> None:
    decoded = one_column(POINT).decode([b"{}", b'{"a": {}}', b'{"a": {"x": 5}}'])
    assert rows(decoded) == [{"a": None}, {"a": {"x": 5, "y": None}}]
    assert [value.message for value in decoded.bad] == [Naming(of="a.x")]


def test_the_columns_have_exactly_the_types_and_field_ids_of_the_table() -> None:
    schema = Schema(NestedField(7, "a", LongType(), required=True), NestedField(9, "u", UUIDType()))
    for values in ([], [b'{"a": 1}'], [b"bad"]):
        columns = JsonDecoder(schema).decode(values).columns
        assert columns.schema.field("a").equals(pa.field("a", pa.int64(), nullable=False), check_metadata=False)
        assert [f.metadata[b"PARQUET:field_id"] for f in columns.schema] == [b"7", b"9"]


def test_a_schema_without_fields_still_judges_records() -> None:
    decoded = JsonDecoder(Schema()).decode([b"{}", b"x", b'{"a": 1}'])
    assert (decoded.good, [value.index for value in decoded.bad]) == ([0, 2], [1])


def test_many_bad_records_leave_all_good_ones() -> None:
    values = [b'{"a": "x"}' if i % 3 == 0 else b"{" if i % 7 == 0 else b'{"a": %d}' % i for i in range(3_000)]
    decoded = one_column(LongType()).decode(values)
    assert [row["a"] for row in rows(decoded)] == [i for i in range(3_000) if i % 3 and i % 7]
    assert [value.index for value in decoded.bad] == [i for i in range(3_000) if i % 3 == 0 or i % 7 == 0]


MIXED = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "d", DecimalType(9, 2)),
    NestedField(3, "t", TimestamptzType()),
    NestedField(4, "f", FloatType()),
    NestedField(
        5,
        "s",
        StructType(
            NestedField(6, "x", IntegerType(), required=True),
            NestedField(7, "l", ListType(8, StringType(), element_required=False)),
        ),
    ),
)
MIXED_WITH_MAP = Schema(
    *MIXED.fields, NestedField(9, "m", MapType(10, StringType(), 11, UUIDType(), value_required=False))
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=8)
SOMETHING = st.recursive(
    SCALARS, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=3), s, max_size=3), max_leaves=6
)
FITTING = st.fixed_dictionaries(
    {"n": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "d": st.decimals(-9_999_999, 9_999_999, places=2).map(str),
        "t": st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat()),
        "f": st.floats(width=32),
        "s": st.fixed_dictionaries(
            {"x": st.integers(-(2**31), 2**31 - 1)}, optional={"l": st.lists(st.none() | st.text())}
        ),
        "m": st.dictionaries(st.text(), st.none() | st.uuids().map(str)),
        "other": SOMETHING,
    },
)
ODD = st.fixed_dictionaries({}, optional=dict.fromkeys(("n", "d", "t", "f", "s", "m"), SOMETHING))
AS_JSON = (FITTING | ODD | SOMETHING).map(lambda value: json.dumps(value).encode())
BROKEN = st.binary(max_size=20) | st.builds(lambda value, at: value[:at], AS_JSON, st.integers(0, 40))
FRAGMENTS = st.lists(st.sampled_from([b"{", b"}", b'"n":1', b",", b'"', b"\n", b" ", b"[", b"]", b"\\", b"\x00"])).map(
    b"".join
)


@pytest.mark.parametrize("schema", [MIXED, MIXED_WITH_MAP], ids=["plain", "map"])
@settings(max_examples=150)
@given(values=st.lists(AS_JSON | BROKEN | FRAGMENTS | mutated(AS_JSON), max_size=12))
@example(values=[b'{"n":1}{"n":2}\x00}', b'{"n":3}'])
def test_a_batch_decodes_to_what_each_record_decodes_to_alone(schema: Schema, values: list[bytes]) -> None:
    decoder = JsonDecoder(schema)
    together = outcomes(decoder.decode(values), len(values))
    alone = [outcomes(decoder.decode([value]), 1)[0] for value in values]
    assert repr(together) == repr(alone)


@given(value=FITTING)
def test_what_fits_is_never_refused(value: dict[str, Any]) -> None:
    decoded = JsonDecoder(MIXED_WITH_MAP).decode([json.dumps(value).encode()])
    assert decoded.bad == ()
    assert rows(decoded)[0]["n"] == value["n"]


def test_a_null_struct_with_a_required_field_is_a_row_as_any_other() -> None:
    schema = Schema(NestedField(1, "o", StructType(NestedField(2, "x", IntegerType(), required=True))))
    decoded = JsonDecoder(schema).decode([b'{"o": {"x": 1}}', b'{"o": null}', b"{}", b'{"o": {}}'])
    assert decoded.columns.column("o").to_pylist() == [{"x": 1}, None, None]
    assert [bad.message for bad in decoded.bad] == [Naming(of="o.x")]
    pq.write_table(pa.Table.from_batches([conform(decoded.columns.columns, file_schema(schema))]), io.BytesIO())


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b'{"i": "x"}', Naming("string", "number", of="i")),
        (b'{"s": {"l": [{"t": 1}]}}', Naming("number", "string", of="s.l.element.t")),
        (b'{"s": 7}', Naming("number", "object", of="s")),
        (b'{"i": 1, "i": 2}', Naming(of="i")),
        (b'{"i": 3000000000}', Naming(3000000000, "int", of="i")),
        (b'{"i": 1.5}', Naming(1.5, "int", of="i")),
    ],
)
def test_an_error_of_the_parser_names_field_and_kinds(record: bytes, said: Naming) -> None:
    schema = schema_of({"i": "int", "s": "struct<l: list<struct<t: string>>>"})
    assert outcomes(JsonDecoder(schema).decode([record]), 1) == [(FIT, said)]

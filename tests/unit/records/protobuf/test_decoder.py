"""What becomes of a Protobuf message: its typed values, or an error that names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.sink_core import compiled
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.decode.decoded import DECODE, FIT
from calve.sink_core.records.protobuf.columns import protobuf_columns
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.schema import Messages, proto_file
from tests.codes import Naming, holds
from tests.fuzz import mutated
from tests.unit.records.decode.outcomes import outcomes
from tests.unit.records.protobuf.messages import HEADER, ORDER, OneFile, framed, messages, order, order_schema, priced


@pytest.fixture(autouse=True, scope="module", params=["parsed", "kernel"])
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has the kernel read what it is for, or has each message parsed."""
    by_kernel = request.param == "kernel"
    if by_kernel:
        import_module(compiled.PROTOBUF)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "usable", lambda *_: by_kernel)
        yield


UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OLD = """
syntax = "proto2";
message Old {
  required int64 id = 1;
  optional int32 five = 2 [default = 5];
  optional string text = 3;
  repeated group Part = 4 { optional int32 n = 1; }
}
"""


def decoder(schema: Schema | None = None, text: str = ORDER) -> ProtobufDecoder:
    return ProtobufDecoder(schema or protobuf_columns(order_schema()), messages(text))


def one(kind: IcebergType, name: str, message: Any) -> Any:
    [found] = outcomes(decoder(Schema(NestedField(1, name, kind))).decode([framed(message)]), 1)
    return found[name] if isinstance(found, dict) else found


def test_values_arrive_as_their_types_and_what_is_not_there_as_the_schema_says() -> None:
    full = order(
        id=-(2**63),
        maybe=0,
        big=2**64 - 1,
        word=2**32 - 1,
        f=0.5,
        d=1e300,
        yes=True,
        text="Größe \N{GRINNING FACE}",
        raw=b"\0\xff",
        colour=1,
        tags=["a", ""],
        sizes={"s": 1},
        word_of="w",
        colours=[1, 0],
    )
    full.at.FromDatetime(datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC))
    full.took.seconds, full.took.nanos = -1, -5
    full.wrapped.value = 0
    full.cities.add(name="Oslo", x=1.5)
    full.cities.add()
    full.by_number[-1].name = "Rome"
    full.home.SetInParent()
    first, second = outcomes(decoder().decode([framed(full), framed(order())]), 2)
    assert first == {
        "id": -(2**63),
        "maybe": 0,
        "big": Decimal(2**64 - 1),
        "word": 2**32 - 1,
        "f": 0.5,
        "d": 1e300,
        "yes": True,
        "text": "Größe \N{GRINNING FACE}",
        "raw": b"\0\xff",
        "colour": "RED",
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        "took": Decimal("-1.000000005"),
        "wrapped": 0,
        "tags": ["a", ""],
        "cities": [{"name": "Oslo", "x": 1.5}, {"name": "", "x": None}],
        "sizes": [("s", 1)],
        "by_number": [(-1, {"name": "Rome", "x": None})],
        "home": {"name": "", "x": None},
        "word_of": "w",
        "city_of": None,
        "colours": ["RED", "NONE"],
    }
    there = {"id": 0, "big": Decimal(0), "word": 0, "f": 0.0, "d": 0.0, "yes": False, "text": "", "raw": b""}
    empty = {"colour": "NONE", "tags": [], "cities": [], "sizes": [], "by_number": [], "colours": []}
    assert second == {**dict.fromkeys(first), **there, **empty}


def test_other_columns_take_what_fits_them() -> None:
    assert one(DecimalType(38, 10), "id", order(id=7)) == Decimal(7)
    assert one(IntegerType(), "id", order(id=2**31 - 1)) == 2**31 - 1
    assert one(IntegerType(), "colour", order(colour=1)) == 1
    assert one(FloatType(), "d", order(d=0.5)) == 0.5
    assert math.isnan(one(FloatType(), "d", order(d=math.nan)))
    assert one(UUIDType(), "text", order(text=UUID_TEXT)) == UUID(UUID_TEXT).bytes
    assert one(UUIDType(), "raw", order(raw=UUID(UUID_TEXT).bytes)) == UUID(UUID_TEXT).bytes
    assert one(FixedType(2), "raw", order(raw=b"ab")) == b"ab"
    assert one(ListType(2, LongType(), element_required=False), "colours", order(colours=[1])) == [1]
    seconds = StructType(NestedField(2, "seconds", LongType()), NestedField(3, "nanos", IntegerType()))
    late = order()
    late.at.seconds, late.at.nanos = 5, 7
    assert one(seconds, "at", late) == {"seconds": 5, "nanos": 7}


def stamped(seconds: int, nanos: int) -> Any:
    made = order()
    made.at.seconds, made.at.nanos = seconds, nanos
    return made


@pytest.mark.parametrize(
    ("kind", "name", "message", "named"),
    [
        (IntegerType(), "id", order(id=2**31), []),
        (LongType(), "big", order(big=2**63), []),
        (FloatType(), "d", order(d=0.1), [0.1, "float"]),
        (BooleanType(), "id", order(id=1), ["int64", "boolean"]),
        (LongType(), "tags", order(tags=["a"]), ["repeated string", "long"]),
        (LongType(), "sizes", order(sizes={"a": 1}), ["map", "long"]),
        (StringType(), "colour", order(colour=9), [9, "shop.Colour"]),
        (UUIDType(), "text", order(text="x"), ["'x'", "UUID"]),
        (FixedType(2), "raw", order(raw=b"abc"), []),
        (TimestamptzType(), "at", stamped(0, 1), [1]),
        (TimestamptzType(), "at", stamped(0, -1), [0, -1]),
        (TimestamptzType(), "at", stamped(2**62, 0), []),
    ],
)
def test_what_does_not_fit_is_named_and_its_neighbours_are_read(
    kind: IcebergType, name: str, message: Any, named: list[object]
) -> None:
    neighbour = framed(order(text=UUID_TEXT, raw=b"ab"))
    found = outcomes(decoder(Schema(NestedField(1, name, kind))).decode([neighbour, framed(message), neighbour]), 3)
    assert found[1] == (FIT, Naming(*named, of=name))
    assert isinstance(found[0], dict)
    assert found[0] == found[2]


def test_a_value_that_is_no_message_of_the_schema_is_bad() -> None:
    good = framed(order(id=1))
    values = [
        b"",
        HEADER,
        b"\0\0\0\0\x08\0",
        HEADER + b"\x0a\0",
        HEADER + b"\x02\x20",
        HEADER + b"\x01",
        HEADER + b"\xff" * 20,
        good[:-1],
        HEADER + b"\x02\x02" + b"\xfa\x3e\x01x",
        HEADER + b"\x02\x02\x42\x01\xff",
        good,
    ]
    found = outcomes(decoder().decode(values), len(values))
    told = [
        Naming(),
        Naming(),
        Naming("0000000008"),
        Naming(),
        Naming("schema id 7", "[16]"),
        Naming(-1),
        Naming(),
        Naming("schema id 7", "shop.Order"),
        Naming(1007, "shop.Order"),
        Naming("schema id 7", "shop.Order"),
    ]
    assert found[:-1] == [(DECODE, each) for each in told]
    assert found[-1]["id"] == 1


def test_messages_of_several_kinds_are_stored_side_by_side() -> None:
    assert order_schema("shop.Other.Inner").descriptor.full_name == "shop.Other.Inner"
    reading = decoder(Schema(NestedField(1, "text", StringType()), NestedField(2, "name", StringType())))
    other = GetMessageClass(order_schema("shop.Other").descriptor)(name="n")
    found = outcomes(reading.decode([framed(order(text="t")), framed(other, b"\0"), framed(order())]), 3)
    assert found == [{"text": "t", "name": None}, {"text": None, "name": "n"}, {"text": "", "name": None}]


def test_proto2_knows_what_is_required_and_its_defaults() -> None:
    schema = messages(OLD).writer_of(HEADER + b"\0")
    columns = protobuf_columns(schema)
    assert [(f.name, f.required) for f in columns.fields] == [
        ("id", True),
        ("five", False),
        ("text", False),
        ("part", False),
    ]
    made = GetMessageClass(schema.descriptor)(id=1)
    made.part.add(n=3)
    found = outcomes(decoder(columns, OLD).decode([framed(made, b"\0"), HEADER + b"\0"]), 2)
    assert found == [{"id": 1, "five": 5, "text": None, "part": [{"n": 3}]}, (FIT, Naming(of="id"))]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x0a\x01\xff", "s: "),
        (b"\x12\x01\xff", "r.element: "),
        (b"\x1a\x06\x0a\x01a\x12\x01\xff", "m.value: "),
        (b"\x1a\x06\x0a\x01\xff\x12\x01a", "m.key: "),
    ],
)
def test_a_string_of_proto2_that_is_no_text_is_named_and_its_neighbours_are_read(body: bytes, said: str) -> None:
    fields = "optional string s = 1; repeated string r = 2; map<string, string> m = 3;"
    text = f'syntax = "proto2"; message A {{ {fields} }}'
    columns = protobuf_columns(messages(text).writer_of(HEADER + b"\0"))
    good = HEADER + b"\0" + b"\x0a\x01a"
    found = outcomes(decoder(columns, text).decode([good, HEADER + b"\0" + body, good]), 3)
    assert found[0] == found[2] == {"s": "a", "r": [], "m": []}
    assert found[1][0] == FIT
    assert found[1][1].startswith(said)


@pytest.mark.parametrize(
    ("text", "references", "named"),
    [
        ("message A {", (), "calve-root.proto:1:12"),
        ('import "no.proto";', (), "no.proto"),
        ("", (("../../x.proto", ""),), "'../../x.proto'"),
        ("", (("/x.proto", ""),), "'/x.proto'"),
        ("", (("a" * 300, ""),), "a" * 100),
        ("", ((".", ""),), "calve-root.proto"),
        ("", (("", ""),), "calve-root.proto"),
        ("", (("a/b", ""), ("a", "")), "'a'"),
        ("", (("a", ""), ("a/b", "")), "'a/b'"),
        ("", (("\ud800", ""),), "surrogates"),
        # protoc ends by a signal.
        ('syntax = "proto2"; message A {' + "optional group G = 1 {" * 8_000 + "}" * 8_001, (), "protoc"),
    ],
)
def test_a_text_that_is_no_schema_is_told(text: str, references: tuple[tuple[str, str], ...], named: str) -> None:
    with pytest.raises(ValueError, match=r"\bProtobuf\b|signal \d+") as raised:
        proto_file("schema id 7", text, references)
    holds(str(raised.value), named)


def test_a_file_without_a_message_is_no_schema_of_rows() -> None:
    assert proto_file("schema id 7", 'syntax = "proto3"; enum E { A = 0; }').unfit == Naming("schema id 7")


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
ORDERS = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "maybe": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(0, 2**64 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "text": TEXT,
        "raw": st.binary(max_size=20),
        "tags": st.lists(TEXT, max_size=3),
        "sizes": st.dictionaries(TEXT, st.integers(-(2**31), 2**31 - 1), max_size=3),
        "at": st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    },
)


def made(values: dict[str, Any]) -> Any:
    message = order(**{name: value for name, value in values.items() if name != "at"})
    if "at" in values:
        message.at.FromMicroseconds(values["at"])
    return message


@settings(max_examples=60)
@given(st.lists(ORDERS, min_size=1, max_size=6))
def test_any_message_arrives(records: list[dict[str, Any]]) -> None:
    found = outcomes(decoder().decode([framed(made(values)) for values in records]), len(records))
    for values, row in zip(records, found, strict=True):
        expected = dict(values)
        if "at" in expected:
            expected["at"] = EPOCH + timedelta(microseconds=expected["at"])
        got = {name: dict(row[name]) if name == "sizes" else row[name] for name in values}
        assert got == expected


@settings(max_examples=150)
@given(st.lists(mutated(ORDERS.map(lambda values: framed(made(values)))), min_size=1, max_size=4))
def test_whatever_the_bytes_each_has_one_verdict(values: list[bytes]) -> None:
    outcomes(decoder().decode(values), len(values))


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_any_bytes_behind_the_header_have_one_verdict(values: list[bytes]) -> None:
    outcomes(decoder().decode([HEADER + b"\x02\x02" + value for value in values]), len(values))


def test_the_schema_says_what_a_table_lacks() -> None:
    table = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "gone", StringType()))
    value = framed(order(id=2**40))
    decode = ProtobufDecoder(table, messages(), ("add_column", "widen")).decode
    wanted = decode([value]).wanted
    assert wanted is not None
    found = evolved(table, wanted, ("add_column", "widen"))
    assert found is not None
    assert found.schema.find_type("id") == LongType()
    columns = protobuf_columns(order_schema())
    assert {of.name for of in found.schema.fields} == {"gone", *(of.name for of in columns.fields)}
    assert decode([value]).wanted is None
    assert ProtobufDecoder(table, messages()).decode([value]).wanted is None


@pytest.mark.parametrize(
    ("unscaled", "scale", "then"),
    [
        (125, 2, Decimal("1.25")),
        (-1250, 3, Decimal("-1.25")),
        (12, -3, Decimal(12000)),
        (10**38 - 1, 0, Decimal(10**38 - 1)),
        (1251, 3, Naming(of="price")),
        (10**38, 0, Naming(of="price")),
        (2**135, 0, Naming(18, 0, of="price")),
        (1, -1000, Naming(1, -1000, of="price")),
    ],
)
def test_a_decimal_fits_a_column_with_all_its_digits(unscaled: int, scale: int, then: Decimal | Naming) -> None:
    file, schema = priced()
    message: Any = GetMessageClass(schema.descriptor)()
    message.price.value, message.price.scale = (
        unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True),
        scale,
    )
    digits = 2 if unscaled < 10**30 else 0
    table = Schema(NestedField(1, "price", DecimalType(38, digits), required=False))
    value = HEADER + b"\0" + message.SerializeToString()
    decoded = ProtobufDecoder(table, Messages(OneFile(file))).decode([value])
    if isinstance(then, Decimal):
        assert decoded.columns.column("price").to_pylist() == [then]
    else:
        [bad] = decoded.bad
        assert (bad.stage, bad.message) == (FIT, then)

"""Kafka Connect's envelope: typed values by the schema in it, or an error that names the field."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from calve.sink_core.codes import Code
from calve.sink_core.records.columns.type_text import spark_type_text
from calve.sink_core.records.connect.columns import connect_columns
from calve.sink_core.records.connect.decoder import ConnectDecoder, widest_type
from calve.sink_core.records.decode.decoded import DECODE, FIT
from tests.codes import Naming, names, raises
from tests.fuzz import mutated
from tests.unit.records.decode.outcomes import outcomes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN = float("nan")


def struct(*fields: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False, "name": "shop.Order", **more}


def named(field: str, kind: str, *, optional: bool = True, **more: object) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": field, **more}


def data(field: str, kind: str, meaning: str, **parameters: str) -> dict[str, Any]:
    more = {"parameters": parameters} if parameters else {}
    return named(field, kind, name=f"org.apache.kafka.connect.data.{meaning}", version=1, **more)


def unscaled(value: Decimal, scale: int) -> str:
    number = int(value.scaleb(scale, Context(prec=60)))
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


ORDER = struct(
    named("id", "int64", optional=False, doc="the order's number"),
    named("small", "int8"),
    named("int", "int32"),
    named("x", "double"),
    named("y", "float"),
    named("text", "string"),
    named("raw", "bytes"),
    named("yes", "boolean"),
    data("price", "bytes", "Decimal", scale="2", **{"connect.decimal.precision": "10"}),
    data("sum", "bytes", "Decimal", scale="4"),
    data("day", "int32", "Date"),
    data("at", "int64", "Timestamp"),
    data("tick", "int32", "Time"),
    named("tags", "array", items={"type": "string", "optional": True}),
    named("sizes", "map", keys={"type": "string"}, values={"type": "int32", "optional": True}),
    named("by_number", "map", keys={"type": "int32"}, values={"type": "double", "optional": True}),
    {**struct(data("cost", "bytes", "Decimal", scale="1"), named("n", "int16")), "field": "inner", "optional": True},
)
EVERY = {
    "small": -128,
    "int": 2**31 - 1,
    "x": 1e300,
    "y": 0.5,
    "text": "Größe \N{GRINNING FACE}",
    "raw": base64.b64encode(b"\0\xff").decode(),
    "yes": True,
    "price": unscaled(Decimal("-1.25"), 2),
    "sum": unscaled(Decimal(10**34 - 1), 4),
    "day": 20_000,
    "at": 1_717_149_600_123,
    "tick": 86_399_999,
    "tags": ["a", None],
    "sizes": {"s": 1, "n": None},
    "by_number": [[1, 0.5], [-2, None]],
    "inner": {"cost": unscaled(Decimal("0.1"), 1), "n": 7},
}


def envelope(payload: object, schema: object = ORDER) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False, separators=(",", ":")).encode()


def decoder(schema: object = ORDER) -> ConnectDecoder:
    return ConnectDecoder(columns(schema))


def columns(schema: object = ORDER) -> Schema:
    return connect_columns(widest_type([envelope({}, schema)]))


def test_columns_are_those_of_the_schema() -> None:
    found = {f.name: (spark_type_text(f.field_type).lower(), f.required) for f in columns().fields}
    assert found == {
        "id": ("bigint", True),
        "small": ("int", False),
        "int": ("int", False),
        "x": ("double", False),
        "y": ("float", False),
        "text": ("string", False),
        "raw": ("binary", False),
        "yes": ("boolean", False),
        "price": ("decimal(10, 2)", False),
        "sum": ("decimal(38, 4)", False),
        "day": ("date", False),
        "at": ("timestamp", False),
        "tick": found["tick"],
        "tags": ("array<string>", False),
        "sizes": ("map<string, int>", False),
        "by_number": ("map<int, double>", False),
        "inner": ("struct<`cost`: decimal(38, 1), `n`: int>", False),
    }
    assert columns().find_field("id").doc == "the order's number"


def test_values_become_what_their_schema_says() -> None:
    values = [envelope({"id": 1, **EVERY}), envelope({"id": 2}), envelope({"id": 3, **dict.fromkeys(EVERY)})]
    first, second, third = outcomes(decoder().decode(values), 3)
    assert first == {
        **EVERY,
        "id": 1,
        "raw": b"\0\xff",
        "price": Decimal("-1.25"),
        "sum": Decimal("9999999999999999999999999999999999.0000"),
        "day": date(1970, 1, 1) + timedelta(20_000),
        "at": EPOCH + timedelta(milliseconds=1_717_149_600_123),
        "tick": time(23, 59, 59, 999_000),
        "sizes": [("s", 1), ("n", None)],
        "by_number": [(1, 0.5), (-2, None)],
        "inner": {"cost": Decimal("0.1"), "n": 7},
    }
    assert (second, third) == ({"id": 2, **dict.fromkeys(EVERY)}, {"id": 3, **dict.fromkeys(EVERY)})


def test_decimals_may_be_written_as_numbers() -> None:
    schema = struct(data("a", "bytes", "Decimal", scale="2"))
    numbers = [b'{"schema":%s,"payload":{"a":%s}}' % (json.dumps(schema).encode(), n) for n in (b"1.25", b"-3", b"1e1")]
    reading = decoder(schema)
    for _ in range(2):
        found = outcomes(reading.decode([*numbers, envelope({"a": unscaled(Decimal("7.5"), 2)}, schema)]), 4)
        assert found == [{"a": Decimal(n)} for n in ("1.25", "-3.00", "10.00", "7.50")]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_float_that_is_no_number_stands_in_quotes(text: str) -> None:
    schema = struct(named("x", "double"), named("text", "string"))
    [found] = outcomes(decoder(schema).decode([envelope({"x": text, "text": text}, schema)]), 1)
    assert found["text"] == text
    assert math.isnan(found["x"]) if text == "NaN" else found["x"] == float(text)


def test_records_of_several_schemas_and_layouts_are_read_side_by_side() -> None:
    old, new = struct(named("id", "int64")), struct(named("id", "int64"), named("text", "string"))
    schema = columns(new)
    values = [
        envelope({"id": 1}, old),
        envelope({"id": 2, "text": "x"}, new),
        json.dumps({"payload": {"id": 3}, "schema": old}, indent=1).encode(),
        envelope({"id": 4}, None),
        envelope({"id": 5}, old) + b" \n",
    ]
    found = outcomes(ConnectDecoder(schema).decode(values), len(values))
    assert found == [{"id": i, "text": "x" if i == 2 else None} for i in range(1, 6)]


@pytest.mark.parametrize(
    ("value", "stage", "said"),
    [
        (b"", DECODE, Naming()),
        (b'{"id": 1}', DECODE, Naming("id")),
        (b'{"schema":null}', DECODE, Naming("schema")),
        (b'{"schema":null,"schema":null}', DECODE, Naming()),
        (b'{"schema":null,"payload":{"id":1},"more":1}', DECODE, Naming("more, payload, schema")),
        (envelope(None), DECODE, Naming()),
        (envelope([1]), DECODE, Naming()),
        (envelope({"id": 1}, {"type": "strct"}), DECODE, Naming("strct")),
        (envelope(1, {"type": "int32"}), DECODE, Naming("int32")),
        (envelope({"id": 1}, []), DECODE, Naming()),
        (envelope({}), FIT, Naming(of="id")),
        (envelope({"id": "1"}), FIT, Naming(of="id")),
        (envelope({"id": 1, "int": 2**31}), FIT, Naming(of="int")),
        (envelope({"id": 1, "raw": "?"}), FIT, Naming("'?'", of="raw")),
        (envelope({"id": 1, "price": "?"}), FIT, Naming("'?'", of="price")),
        (envelope({"id": 1, "price": unscaled(Decimal(10**8), 2)}), FIT, Naming(of="price")),
        (envelope({"id": 1, "sum": base64.b64encode(b"\x7f" * 99).decode()}), FIT, Naming(99, of="sum")),
        (envelope({"id": 1, "day": 2**31}), FIT, Naming(of="day")),
        (envelope({"id": 1, "at": 2**62}), FIT, Naming(of="at")),
        (envelope({"id": 1, "tick": 86_400_000}), FIT, Naming("86400000 ms", of="tick")),
        (envelope({"id": 1, "by_number": [[1]]}), DECODE, Naming()),
        (envelope({"id": 1, "by_number": [[1, 1], [1, 2]]}), DECODE, Naming()),
        (b'{"schema":null,"payload":' + b"[" * 100_000, DECODE, Naming()),
    ],
)
def test_what_is_wrong_is_told_and_its_neighbours_are_read(value: bytes, stage: str, said: Naming) -> None:
    for values in ([envelope({"id": 1}), value, envelope({"id": 2})], [value]):
        found = outcomes(decoder().decode(values), len(values))
        place = values.index(value)
        assert found[place] == (stage, said)
        assert [row["id"] for i, row in enumerate(found) if i != place] == [1, 2][: len(values) - 1]


def test_a_second_object_behind_the_payload_is_no_part_of_it() -> None:
    good = envelope({"id": 1})
    values = [good, good[:-1] + b',"x":{}}', good[:-1] + b'}{"id":2}}', good[:-1] + b'\n{"id":2}}']
    found = outcomes(decoder().decode(values), 4)
    assert found[0]["id"] == 1
    assert [verdict[0] for verdict in found[1:]] == [DECODE] * 3


def test_a_schema_that_does_not_fit_the_table_is_named() -> None:
    reading = ConnectDecoder(Schema(NestedField(1, "id", IntegerType()), NestedField(2, "text", LongType())))
    schema = struct(named("id", "int64"), named("text", "string"))
    misfit = (FIT, Naming("string", "long", of="text"))
    assert outcomes(reading.decode([envelope({"id": 1}, schema)]), 1) == [misfit]


def test_a_decimal_of_another_scale_must_fit_the_columns_digits() -> None:
    schema = struct(data("a", "bytes", "Decimal", scale="3"))
    reading = ConnectDecoder(Schema(NestedField(1, "a", DecimalType(9, 2))))
    found = outcomes(reading.decode([envelope({"a": unscaled(Decimal(n), 3)}, schema) for n in ("1.250", "1.255")]), 2)
    assert found[0] == {"a": Decimal("1.25")}
    assert found[1][0] == FIT


@pytest.mark.parametrize("scale", ["9999999999", "1_0", 2.7, True, "", None])
def test_a_scale_that_is_none_is_a_dead_letter(scale: object) -> None:
    schema = struct(data("a", "bytes", "Decimal", scale=scale))  # pyright: ignore[reportArgumentType]
    reading = ConnectDecoder(Schema(NestedField(1, "a", DecimalType(9, 2))))
    [(stage, message)] = outcomes(reading.decode([envelope({"a": unscaled(Decimal(1), 2)}, schema)]), 1)
    assert stage == DECODE
    names(message, *([repr(scale)] if scale else []))


def test_a_decimal_of_no_bytes_is_none() -> None:
    schema = struct(data("a", "bytes", "Decimal", scale="2"))
    reading = ConnectDecoder(Schema(NestedField(1, "a", DecimalType(9, 2))))
    assert outcomes(reading.decode([envelope({"a": ""}, schema)]), 1) == [(FIT, Naming(of="a"))]


@pytest.mark.parametrize("levels", [60, 250, 490, 985, 20_000])
def test_a_schema_nested_too_deeply_is_a_dead_letter(levels: int) -> None:
    deep = '{"type":"array","items":' * levels + '{"type":"int32"}' + "}" * levels
    field = f'{{"field":"d","optional":true,"type":"array","items":{deep}}}'
    fields = f'[{{"field":"id","type":"int64"}},{field}]'
    value = f'{{"schema":{{"type":"struct","fields":{fields}}},"payload":{{"id":1,"d":null}}}}'.encode()
    for steps in ((), ("add_column",)):
        reading = ConnectDecoder(Schema(NestedField(1, "id", LongType())), steps)  # pyright: ignore[reportArgumentType]
        assert outcomes(reading.decode([value]), 1)[0][0] == DECODE


@pytest.mark.parametrize("key", ["null", "true", "1"])
def test_a_key_that_is_no_text_is_none_of_a_map_of_texts(key: str) -> None:
    numbers = named("by_number", "map", keys={"type": "int64"}, values={"type": "int32"})
    schema = struct(numbers, named("m", "map", keys={"type": "string"}, values={"type": "int32"}))
    value = f'{{"schema":{json.dumps(schema)},"payload":{{"by_number":[[1,2]],"m":[[{key},1]]}}}}'.encode()
    assert outcomes(ConnectDecoder(columns(schema)).decode([value]), 1) == [(DECODE, Naming(key))]


@pytest.mark.parametrize("value", ['{"schema":1,"\\ud800":2}', '{"schema":{"type":"\\ud800"},"payload":{}}'])
def test_a_verdict_can_be_written_whatever_it_names(value: str) -> None:
    [(stage, message)] = outcomes(decoder().decode([value.encode()]), 1)
    assert stage == DECODE
    assert "\\ud800" in message.encode().decode()


def test_a_decimal_that_has_too_many_digits_at_the_columns_scale_does_not_fit() -> None:
    schema = struct(data("a", "bytes", "Decimal", scale="0"))
    reading = ConnectDecoder(Schema(NestedField(1, "a", DecimalType(38, 10))))
    values = [envelope({"a": unscaled(Decimal(n), 0)}, schema) for n in ("4e28", "7", "-4e28")]
    assert outcomes(reading.decode(values), 3) == [
        (FIT, Naming(38, of="a")),
        {"a": Decimal(7)},
        (FIT, Naming(38, of="a")),
    ]


@pytest.mark.parametrize(
    ("field", "code", "named"),
    [
        (data("a", "bytes", "Decimal", scale="39"), Code.NO_COLUMN_TYPE, ["a", 39]),
        (data("a", "bytes", "Decimal", scale="-1"), Code.NO_COLUMN_TYPE, ["a", -1]),
        (named("a", "map", keys={"type": "bytes"}, values={"type": "string"}), Code.NO_COLUMN_TYPE, ["a", "bytes"]),
        (named("a", "struct", fields=[]), Code.NO_SAMPLE, []),
    ],
)
def test_what_no_column_holds_is_refused_by_name(field: dict[str, Any], code: Code, named: list[object]) -> None:
    with raises(code) as raised:
        columns(struct(field))
    names(raised.value.message, *named)


def test_without_an_envelope_there_are_no_columns() -> None:
    with raises(Code.NO_SAMPLE):
        connect_columns(widest_type([b"{}", b"", envelope({"a": 1}, None)]))


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)))
PAYLOADS = st.fixed_dictionaries(
    {"id": INT64},
    optional={
        "text": st.none() | TEXT,
        "x": st.floats(allow_nan=False),
        "raw": st.binary(max_size=9),
        "sum": st.decimals(-(10**30), 10**30, places=4, allow_nan=False),
        "at": st.integers(-62_135_596_800, 253_402_300_799).map(lambda seconds: EPOCH + timedelta(seconds=seconds)),
        "sizes": st.dictionaries(TEXT, st.integers(-(2**31), 2**31 - 1), max_size=3),
        "by_number": st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.none() | st.just(0.5), max_size=3),
    },
)


def written(payload: dict[str, Any]) -> dict[str, Any]:
    """As JsonConverter writes it."""
    ways: dict[str, Any] = {
        "raw": lambda raw: base64.b64encode(raw).decode(),
        "sum": lambda number: unscaled(number, 4),
        "at": lambda at: (at - EPOCH) // timedelta(milliseconds=1),
        "by_number": lambda by: [[key, value] for key, value in by.items()],
        "x": lambda x: x if math.isfinite(x) else ("Infinity" if x > 0 else "-Infinity"),
    }
    return {name: ways[name](value) if name in ways else value for name, value in payload.items()}


@settings(max_examples=60)
@given(st.lists(PAYLOADS, min_size=1, max_size=6))
def test_any_payload_arrives(payloads: list[dict[str, Any]]) -> None:
    found = outcomes(decoder().decode([envelope(written(payload)) for payload in payloads]), len(payloads))
    for payload, row in zip(payloads, found, strict=True):
        expected = {**payload}
        for name in ("sizes", "by_number"):
            if name in payload:
                expected[name] = list(payload[name].items())
        assert {name: row[name] for name in payload} == expected


@settings(max_examples=80)
@given(st.lists(mutated(PAYLOADS.map(lambda payload: envelope(written(payload)))), min_size=1, max_size=4))
def test_whatever_the_bytes_each_has_one_verdict(values: list[bytes]) -> None:
    outcomes(decoder().decode(values), len(values))


def test_what_a_schemaless_payload_holds_is_read_as_json() -> None:
    reading = ConnectDecoder(Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType())))
    found = outcomes(reading.decode([envelope({"id": 1, "text": "x"}, None), envelope({"id": "x"}, None)]), 2)
    assert found[0] == {"id": 1, "text": "x"}
    assert found[1][0] == FIT

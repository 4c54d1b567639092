"""What records need that a table lacks: seen once, by stated rules, and only of records that would fit then."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from calve.sink_core.config.tables import EvolveStep, Steps
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.columns.type_text import schema_of, type_text
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import FIT, Decoded, Decoder
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from tests.codes import names
from tests.unit.records.decode.outcomes import outcomes
from tests.unit.records.protobuf.messages import HEADER, messages

ALL: tuple[EvolveStep, ...] = ("add_column", "widen", "make_optional")
TABLE = schema_of({"id": "int", "price": "decimal(5,2)", "f": "float"})
NESTED = schema_of({"id": "int", "s": "struct<a: int>", "l": "list<struct<a: int>>"})
MAPS = schema_of({"m": "map<string, struct<a: int>>"})
EITHER = Schema(NestedField(1, "either", StringType(), required=True), NestedField(2, "x", StringType(), required=True))
REQUIRED = Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "t", StringType(), required=True))


def after(schema: Schema, decoded: Decoded, steps: Collection[EvolveStep] = ALL) -> dict[str, str] | None:
    """The table's columns as they become; None if nothing is wanted. What is wanted is what changes."""
    if decoded.wanted is None:
        return None
    found = evolved(schema, decoded.wanted, steps)
    assert found is not None
    return {
        field.name: type_text(field.field_type) + (" required" if field.required else "")
        for field in found.schema.fields
        if field not in schema.fields
    }


FEW = Steps(ALL, 6)
"""Three more than `TABLE` has."""


@pytest.mark.parametrize("steps", [FEW, FEW.without()])
@pytest.mark.parametrize(
    "more",
    [{f"f{i}": i for i in range(4)}, {"s": {"a": 1, "b": {"c": 1}}}, {"l": [{"a": 1}, {"b": 2}]}, {"m": [[[1]]]}],
)
def test_a_record_that_needs_more_columns_than_there_is_room_for_is_bad(steps: Steps, more: dict[str, Any]) -> None:
    values = [json.dumps(record).encode() for record in ({"id": 1}, {"id": 2, **more}, {"id": 3, "new": 1})]
    decoded = JsonDecoder(TABLE, steps).decode(values)
    first, bad, last = outcomes(decoded, 3)
    assert (bad[0], first["id"], last["id"]) == (FIT, 1, 3)
    names(bad[1], "4", "3")
    assert after(TABLE, decoded, steps) == ({"new": "long"} if steps else None)


def test_no_more_columns_are_added_than_there_is_room_for() -> None:
    records = [{f"f{i}": i} for i in range(9)] + [{"none": None, "more": {"a": 1}}]
    assert of_json(TABLE, *records, steps=FEW) == {"f0": "long", "f1": "long", "f2": "long"}
    assert of_json(TABLE, {"a": {"b": 1}}, {"c": {"d": 1}}, {"e": 1}, steps=FEW) == {
        "a": "struct<b: long>",
        "e": "long",
    }


def of_avro(number: int) -> tuple[Decoder, bytes]:
    fields = [{"name": f"f{i}", "type": "int", "default": 0} for i in range(number)]
    written = writer_schema("s", json.dumps({"type": "record", "name": "R", "fields": fields}))
    return AvroDecoder(TABLE, OneSchema(written), FEW), b"\0" * number


def of_protobuf(number: int) -> tuple[Decoder, bytes]:
    fields = " ".join(f"int32 f{i} = {i + 1};" for i in range(number))
    text = f'syntax = "proto3"; message R {{ {fields} }}'
    return ProtobufDecoder(TABLE, messages(text), FEW), HEADER + b"\0"


def of_connect(number: int) -> tuple[Decoder, bytes]:
    fields = [{"field": f"f{i}", "type": "int32", "optional": True} for i in range(number)]
    return ConnectDecoder(TABLE, FEW), json.dumps(
        {"schema": {"type": "struct", "fields": fields}, "payload": {}}
    ).encode()


@pytest.mark.parametrize("of", [of_avro, of_protobuf, of_connect])
def test_records_of_a_schema_that_needs_more_columns_than_there_is_room_for_are_bad(
    of: Callable[[int], tuple[Decoder, bytes]],
) -> None:
    decoder, value = of(4)
    decoded = decoder.decode([value, value])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, FIT), (1, FIT)]
    names(decoded.bad[0].message, "4", "3")
    assert after(TABLE, decoded, FEW) is None
    decoder, value = of(3)
    assert after(TABLE, decoder.decode([value]), FEW) == {"f0": "int", "f1": "int", "f2": "int"}


def of_json(schema: Schema, *records: Any, steps: Collection[EvolveStep] = ALL) -> dict[str, str] | None:
    values = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    return after(schema, JsonDecoder(schema, steps).decode(values), steps)


@pytest.mark.parametrize(
    ("schema", "records", "wanted"),
    [
        (TABLE, [{"id": 1, "price": 1.25, "f": 0.5}], None),
        (TABLE, [{"id": 1}, {"new": "x"}], {"new": "string"}),
        (TABLE, [{"new": 1}, {"new": 1.5}], {"new": "double"}),
        (TABLE, [{"new": "2024-05-31"}, {"new": None}], {"new": "date"}),
        (TABLE, [{"new": "2024-05-31T00:00:00Z"}], {"new": "timestamptz"}),
        (TABLE, [{"new": 2**63}], {"new": "decimal(38, 0)"}),
        (TABLE, [{"new": {"a": [1], "n": None}}], {"new": "struct<a: list<long>>"}),
        (TABLE, [{"new": None, "empty": [], "none": {}, "nulls": [None]}], None),
        (TABLE, [b'{"f": -NaN, "new": 1}'], {"new": "long"}),
        (TABLE, [b'{"f": Inf, "new": [-Inf]}'], {"new": "list<double>"}),
        (TABLE, [b'{"new": %s}' % (b"1" * 5_000)], {"new": "double"}),
        (TABLE, [{"new": "x"}, {"new": 1}], {"new": "string"}),
        (TABLE, [{"new": 1}, {"new": "x"}, {"other": True}], {"new": "long", "other": "boolean"}),
        (TABLE, [{"id": 2**31}, {"id": -(2**31)}], {"id": "long"}),
        (TABLE, [{"id": 2**63}], None),
        (TABLE, [{"id": "x", "new": 1}], None),
        (TABLE, [{"id": 1.5}, {"new": 1}], {"new": "long"}),
        (TABLE, [b"{", {"new": 1}], {"new": "long"}),
        (TABLE, [{"price": 123456.5}, {"price": "1234.5"}], {"price": "decimal(8, 2)"}),
        (TABLE, [{"price": 1.255}], None),
        (TABLE, [{"price": 10**36}], None),
        (TABLE, [{"f": 1e39}], {"f": "double"}),
        (TABLE, [{"_kafka": 1}], None),
        (NESTED, [{"s": {"a": 1, "b": 2}}], {"s": "struct<a: int, b: long>"}),
        (NESTED, [{"l": [{"a": 2**31, "b": [{"c": 1}]}]}], {"l": "list<struct<a: long, b: list<struct<c: long>>>>"}),
        (NESTED, [{"l": [None], "new": 1}], {"new": "long"}),
        (MAPS, [{"m": {"k": {"a": 2**31, "b": 1}}}], {"m": "map<string, struct<a: long, b: long>>"}),
        (MAPS, [{"m": {"k": {"a": 1}}, "new": 1}], {"new": "long"}),
        (MAPS, [{"m": {"k": {"a": 1}}}], None),
        (REQUIRED, [{"id": 1}], {"t": "string"}),
        (REQUIRED, [{"id": 1, "t": None}, {"t": "x"}], {"id": "int", "t": "string"}),
        (REQUIRED, [{"id": 1, "t": "x"}], None),
    ],
)
def test_json(schema: Schema, records: list[Any], wanted: dict[str, str] | None) -> None:
    assert of_json(schema, *records) == wanted


@pytest.mark.parametrize(
    ("steps", "record", "wanted"),
    [
        ((), {"new": 1}, None),
        (("widen",), {"new": 1}, None),
        (("add_column",), {"id": 2**31}, None),
        (("add_column",), {"id": 2**31, "new": 1}, None),
        (("make_optional",), {"id": 2**31}, None),
        (("widen",), {"id": 2**31}, {"id": "long"}),
    ],
)
def test_only_what_may_be_given_is_wanted(
    steps: tuple[EvolveStep, ...], record: Any, wanted: dict[str, str] | None
) -> None:
    assert of_json(TABLE, record, steps=steps) == wanted


def test_what_gets_no_column_is_looked_at_once_and_left_out_as_before() -> None:
    decoder = JsonDecoder(TABLE, ALL)
    for _ in range(2):
        found = decoder.decode([b'{"id": 1, "_kafka": {"x": 1}}', b'{"id": 2, "empty": {}}'])
        assert found.wanted is None
        assert found.bad == ()
        assert [row["id"] for row in found.columns.to_pylist()] == [1, 2]
    # A field met beside a bad record is met again.
    assert decoder.decode([b'{"id": "x", "new": 1}']).wanted is None
    assert decoder.decode([b'{"id": 3, "new": 1}']).wanted is not None


ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "either", "type": ["int", "string"]},
        {"name": "s", "type": {"type": "record", "name": "S", "fields": [{"name": "b", "type": "double"}]}},
    ],
}


@pytest.mark.parametrize(
    ("schema", "steps", "wanted"),
    [
        (REQUIRED, ALL, {"id": "long required", "t": "string", "s": "struct<b: double>"}),
        (REQUIRED, ["widen"], {"id": "long required"}),
        (REQUIRED, [], None),
        (schema_of({"id": "long", "t": "string", "s": "struct<b: float>"}), ALL, {"s": "struct<b: double>"}),
        (schema_of({"id": "long", "t": "string", "s": "struct<a: int, b: double>"}), ALL, None),
        (
            Schema(
                NestedField(1, "either", StringType(), required=True), NestedField(2, "x", StringType(), required=True)
            ),
            ["make_optional"],
            {"x": "string"},
        ),
    ],
)
def test_avro_schemas_say_it_without_a_look_at_the_records(
    schema: Schema, steps: list[EvolveStep], wanted: dict[str, str] | None
) -> None:
    decoder = AvroDecoder(schema, OneSchema(writer_schema("s", json.dumps(ORDER))), steps)
    assert after(schema, decoder.decode([b"\x00\x00\x00\x00" + bytes(8)]), steps) == wanted
    assert decoder.decode([b"\x00\x00\x00\x00" + bytes(8)]).wanted is None


def test_an_envelope_says_it_by_its_schema() -> None:
    fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "new", "type": "string", "optional": True}]
    schema = {"type": "struct", "optional": False, "fields": fields}
    value = json.dumps({"schema": schema, "payload": {"id": 1, "new": "x"}}).encode()
    table = schema_of({"id": "int"})
    decoder = ConnectDecoder(table, ALL)
    assert after(table, decoder.decode([value])) == {"id": "long", "new": "string"}
    assert decoder.decode([value]).wanted is None
    assert ConnectDecoder(table).decode([value]).wanted is None

"""Schemas with one field that no column could hold: the others are added, what is left out is counted by its path."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.hudi.files.schema import HUDI_COLUMNS
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from tests.unit.records.decode.outcomes import outcomes
from tests.unit.records.protobuf.messages import HEADER, messages

RECORDS = 5
ADD: Collection[EvolveStep] = ("add_column",)
Make = Callable[[Schema, Collection[EvolveStep], Names], Decoder]


@dataclass(frozen=True)
class Case:
    """`value` is one record, of an id that the table has, a plain `s` that it lacks and a field that nothing holds; at
    `paths` is what is left out.
    """

    make: Make
    value: bytes
    paths: tuple[str, ...] = ("odd",)


def protobuf(fields: str, more: str = "", **values: Any) -> Case:
    head = 'syntax = "proto3"; import "google/protobuf/struct.proto";'
    text = f"{head} message M {{ int64 id = 1; string s = 2; {fields} }}"
    schema = messages(text + more).writer_of(HEADER + b"\0")
    message = GetMessageClass(schema.descriptor)(id=1, s="x", **values)
    value = HEADER + b"\0" + message.SerializeToString()
    return Case(lambda table, steps, names: ProtobufDecoder(table, messages(text + more), steps, names), value)


def avro(kind: Any, value: Any) -> Case:
    fields = [{"name": name, "type": of} for name, of in (("id", "long"), ("s", "string"), ("odd", kind))]
    text = {"type": "record", "name": "R", "fields": fields}
    framing = OneSchema(writer_schema("s", json.dumps(text)))
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(text), {"id": 1, "s": "x", "odd": value})
    return Case(lambda table, steps, names: AvroDecoder(table, framing, steps, names), out.getvalue())


def connect(odd: Mapping[str, Any], value: Any) -> Case:
    fields = [{"field": "id", "type": "int64"}, {"field": "s", "type": "string"}, {"field": "odd", **odd}]
    schema = {"type": "struct", "fields": fields}
    record = {"schema": schema, "payload": {"id": 1, "s": "x", "odd": value}}
    return Case(ConnectDecoder, json.dumps(record).encode())


def plain(**odd: Any) -> Case:
    return Case(JsonDecoder, json.dumps({"id": 1, "s": "x", **odd}).encode(), tuple(odd))


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "optional": True}
CASES = {
    "protobuf-recursive": protobuf("repeated M odd = 3;", odd=[{"id": 2, "s": "y"}]),
    "protobuf-tree": protobuf("Tree odd = 3;", "message Tree { string v = 1; Tree left = 2; }", odd={"v": "a"}),
    "protobuf-struct": protobuf("google.protobuf.Struct odd = 3;", odd={"a": 1, "b": {"c": "d"}}),
    "protobuf-value": protobuf("google.protobuf.Value odd = 3;", odd={"string_value": "a"}),
    "avro-recursive": avro({"type": "array", "items": "R"}, [{"id": 2, "s": "y", "odd": []}]),
    "avro-tree": avro(
        [
            "null",
            {
                "type": "record",
                "name": "T",
                "fields": [{"name": "v", "type": "int"}, {"name": "t", "type": ["null", "T"]}],
            },
        ],
        {"v": 1, "t": {"v": 2, "t": None}},
    ),
    "avro-union": avro(["null", "string", "long"], "a"),
    "avro-decimal": avro({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}, Decimal(1)),
    "connect-scale": connect({**DECIMAL, "parameters": {"scale": "-2"}}, "AQ=="),
    "connect-map": connect(
        {"type": "map", "keys": {"type": "float64"}, "values": {"type": "string"}, "optional": True}, [[1.5, "a"]]
    ),
    "json-empty": plain(odd={}),
    "json-reserved": plain(_pos=1),
    "json-nameless": plain(**{"": 1}),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def left_out(case: Case) -> dict[str, int]:
    return dict.fromkeys(case.paths, RECORDS)


def test_the_others_are_added_and_it_is_counted(case: Case) -> None:
    table = schema_of({"id": "long"})
    first = case.make(table, ADD, EXACT).decode([case.value] * RECORDS)
    assert first.wanted is not None
    found = evolved(table, first.wanted, ADD)
    assert found is not None
    assert {field.name: str(field.field_type) for field in found.schema.fields} == {"id": "long", "s": "string"}
    decoded = case.make(found.schema, ADD, EXACT).decode([case.value] * RECORDS)
    assert outcomes(decoded, RECORDS) == [{"id": 1, "s": "x"}] * RECORDS
    assert (decoded.wanted, dict(decoded.dropped)) == (None, left_out(case))


def test_without_a_step_all_that_is_left_out_is_counted(case: Case) -> None:
    decoded = case.make(schema_of({"id": "long"}), (), EXACT).decode([case.value] * RECORDS)
    assert outcomes(decoded, RECORDS) == [{"id": 1}] * RECORDS
    assert dict(decoded.dropped) == {"s": RECORDS, **left_out(case)}


def test_of_a_column_that_somebody_made_for_part_of_it_the_rest_is_counted_and_added() -> None:
    case = CASES["protobuf-recursive"]
    table = schema_of({"id": "long", "s": "string", "odd": "list<struct<id: long>>"})
    decoded = case.make(table, (), EXACT).decode([case.value] * RECORDS)
    assert outcomes(decoded, RECORDS) == [{"id": 1, "s": "x", "odd": [{"id": 2}]}] * RECORDS
    assert dict(decoded.dropped) == {"odd.element.s": RECORDS, "odd.element.odd": RECORDS}
    wanted = case.make(table, ADD, EXACT).decode([case.value]).wanted
    found = wanted and evolved(table, wanted, ADD)
    assert found is not None
    assert str(found.schema.find_type("odd")).count("string") == 1


def test_what_the_tables_format_has_not_is_left_out_in_the_same_way() -> None:
    logical = {"time": {"type": "long", "logicalType": "time-micros"}, "id": {"type": "string", "logicalType": "uuid"}}
    inner = {"type": "record", "name": "I", "fields": [{"name": name, "type": of} for name, of in logical.items()]}
    case = avro(inner, {"time": time(1), "id": UUID(int=1)})
    names = Names(rule=HUDI_COLUMNS)
    decoded = case.make(schema_of({"id": "long"}), ADD, names).decode([case.value] * RECORDS)
    assert decoded.wanted is not None
    assert "odd" not in decoded.wanted.column_names
    table = schema_of({"id": "long", "s": "string"})
    again = case.make(table, ADD, names).decode([case.value] * RECORDS)
    assert (again.wanted, dict(again.dropped)) == (None, {"odd": RECORDS})
    for name in ("a-b", "1a", "é", "_hoodie_x", "_HOODIE_x"):
        value = json.dumps({"id": 1, "s": "x", name: 1}).encode()
        found = JsonDecoder(table, ADD, names).decode([value])
        assert (found.wanted, dict(found.dropped)) == (None, {name: 1})

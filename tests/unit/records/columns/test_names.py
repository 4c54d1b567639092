"""Fields are found under the table's names, those of its name mapping, and in any case if that is allowed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.columns.names import Names, names_of
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.schema import Messages, ProtoFile, proto_file
from tests.codes import names as names_in
from tests.schema_registry import plain

SCHEMA = schema_of({"id": "long", "at": "struct<x: long>", "tags": "list<struct<y: long>>"})
ID, AT, X = (SCHEMA.find_field(name).field_id for name in ("id", "at", "at.x"))
MAPPED = {ID: ["id", "number"], AT: ["at"], X: ["x", "ex"]}
ALIASES, ANY_CASE = names_of(SCHEMA, MAPPED), names_of(SCHEMA, None, any_case=True)
EXACT = names_of(SCHEMA, None)

CASES: list[tuple[Names, dict[str, Any], dict[str, Any] | list[str]]] = [
    (EXACT, {"id": 1, "ID": 2, "number": 3}, {"id": 1}),
    (ALIASES, {"number": 1, "at": {"ex": 2}}, {"id": 1, "at": {"x": 2}}),
    (ALIASES, {"id": 1, "ID": 2, "at": {"x": 3}}, {"id": 1, "at": {"x": 3}}),
    (ALIASES, {"id": 1, "number": 2}, ["id", "id", "number"]),
    (ANY_CASE, {"ID": 1, "At": {"X": 2}, "TAGS": [{"Y": 3}]}, {"id": 1, "at": {"x": 2}, "tags": [{"y": 3}]}),
    (ANY_CASE, {"id": 1, "Id": 2}, ["id", "id", "Id"]),
    (ANY_CASE, {"ID": 1, "Id": 2}, ["id", "ID", "Id"]),
    (ANY_CASE, {"at": {"X": 1, "x": 2}}, ["x", "x", "X"]),
    (ANY_CASE, {"id": 1, "other": 2}, {"id": 1}),
]


def check(decoder: Decoder, values: list[bytes], then: dict[str, Any] | list[str]) -> None:
    found = decoder.decode(values)
    if isinstance(then, list):
        field, *spellings = then
        assert [bad.stage for bad in found.bad] == ["fit"] * len(values)
        for bad in found.bad:
            place, _, said = bad.message.rpartition(": ")
            assert place.rpartition(".")[2] == field
            names_in(said, *spellings)
        return
    nothing: dict[str, Any] = {"id": None, "at": None, "tags": None}
    assert found.bad == ()
    assert found.columns.to_pylist() == [nothing | then] * len(values)


@pytest.mark.parametrize(("names", "record", "then"), CASES)
def test_json(names: Names, record: dict[str, Any], then: dict[str, Any] | list[str]) -> None:
    check(JsonDecoder(SCHEMA, (), names), [json.dumps(record).encode()] * 2, then)


@pytest.mark.parametrize(("names", "record", "then"), CASES)
def test_avro(names: Names, record: dict[str, Any], then: dict[str, Any] | list[str]) -> None:
    schema = {"type": "record", "name": "R", "fields": [_field(name, value) for name, value in record.items()]}
    decoder = AvroDecoder(SCHEMA, OneSchema(writer_schema("s", json.dumps(schema))), (), names)
    check(decoder, [plain(schema, record)] * 2, then)


@pytest.mark.parametrize(("names", "record", "then"), CASES)
def test_connect_json(names: Names, record: dict[str, Any], then: dict[str, Any] | list[str]) -> None:
    fields = [{"field": name, **_connect_type(value)} for name, value in record.items()]
    envelopes = ({"schema": schema, "payload": record} for schema in (None, {"type": "struct", "fields": fields}))
    for envelope in envelopes:
        check(ConnectDecoder(SCHEMA, (), names), [json.dumps(envelope).encode()] * 2, then)


@pytest.mark.parametrize(("names", "record", "then"), CASES)
def test_protobuf(names: Names, record: dict[str, Any], then: dict[str, Any] | list[str]) -> None:
    file = proto_file("s", f'syntax = "proto3"; {_message("R", record)}')
    message = GetMessageClass(file.file.message_types_by_name["R"])
    value = b"\0" + ParseDict(record, message()).SerializeToString()
    decoder = ProtobufDecoder(SCHEMA, Messages(OneFile(file)), (), names)
    nothing = {"tags": []} if "tags" in record else {}
    check(decoder, [value] * 2, then if isinstance(then, list) else nothing | then)


def test_an_evolving_table_finds_fields_of_schemas_under_their_other_names() -> None:
    fields = [{"field": name, "type": "int64", "optional": True} for name in ("ID", "New")]
    envelope = {"schema": {"type": "struct", "fields": fields}, "payload": {"ID": 1, "New": 2}}
    wanted = ConnectDecoder(SCHEMA, ("add_column",), ANY_CASE).decode([json.dumps(envelope).encode()]).wanted
    file = proto_file("s", 'syntax = "proto3"; message R { int64 ID = 1; int64 New = 2; }')
    value = GetMessageClass(file.file.message_types_by_name["R"])().SerializeToString()
    of_message = (
        ProtobufDecoder(SCHEMA, Messages(OneFile(file)), ("add_column",), ANY_CASE).decode([b"\0" + value]).wanted
    )
    for schema in (wanted, of_message):
        assert schema is not None
        found = evolved(SCHEMA, schema, ("add_column",))
        assert found is not None
        assert found.changes == ("add New long",)


def test_records_of_several_spellings_lie_in_one_block() -> None:
    records = [{"id": 1}, {"ID": 2}, {"id": None, "Id": 3}, {"ID": None, "id": 4}, {"id": 5, "iD": 6}]
    found = JsonDecoder(SCHEMA, (), ANY_CASE).decode([json.dumps(record).encode() for record in records])
    assert [row["id"] for row in found.columns.to_pylist()] == [1, 2, 4]
    assert [bad.index for bad in found.bad] == [2, 4]


def test_what_a_table_has_under_another_name_is_not_added_and_new_fields_are_once() -> None:
    decoder = JsonDecoder(SCHEMA, ("add_column",), ANY_CASE)
    assert decoder.decode([b'{"ID": 1}']).wanted is None
    wanted = decoder.decode([b'{"ID": 1, "New": 1}', b'{"new": 2}']).wanted
    assert wanted is not None
    found = evolved(SCHEMA, wanted, ("add_column",))
    assert found is not None
    assert found.changes == ("add New long",)


@dataclass(frozen=True)
class OneFile:
    """A framing without a header but the message index."""

    file: ProtoFile
    header_bytes: int = 0

    def writer_of(self, value: bytes) -> ProtoFile:  # noqa: ARG002 - whatever the value is
        return self.file


def _message(name: str, record: dict[str, Any]) -> str:
    inner, fields = "", ""
    for number, (key, value) in enumerate(record.items(), 1):
        repeated, one = ("repeated ", value[0]) if isinstance(value, list) else ("", value)
        inner += _message(f"M{number}", one) if isinstance(one, dict) else ""
        fields += f"{repeated}{f'M{number}' if isinstance(one, dict) else 'int64'} {key} = {number}; "
    return f"message {name} {{ {inner}{fields}}} "


def _connect_type(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "struct", "fields": [{"field": key, **_connect_type(inner)} for key, inner in value.items()]}
    if isinstance(value, list):
        return {"type": "array", "items": _connect_type(value[0])}
    return {"type": "int64"}


def _field(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [_field(key, inner) for key, inner in value.items()]
        return {"name": name, "type": {"type": "record", "name": f"R_{name}", "fields": parts}}
    if isinstance(value, list):
        inner = _field(f"{name}_item", value[0])["type"]
        return {"name": name, "type": {"type": "array", "items": inner}}
    return {"name": name, "type": "long"}

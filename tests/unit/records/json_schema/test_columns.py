"""Which columns a JSON Schema gives, and what it is told that gives none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.sink_core.error_codes.records import NO_COLUMN_TYPE
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.type_text import spark_type_text
from calve.sink_core.records.json_schema.columns import json_schema_columns
from calve.sink_core.records.json_schema.decoder import json_schema
from tests.codes import raises


def columns(*references: tuple[str, Any], **root: Any) -> dict[str, tuple[str, bool]]:
    texts = [(name, json.dumps(other)) for name, other in references]
    schema = json_schema_columns(json_schema("schema id 7", json.dumps({"type": "object", **root}), texts))
    return {field.name: (spark_type_text(field.field_type), field.required) for field in schema.fields}


def one(kind: Any, **root: Any) -> str:
    return columns(properties={"a": kind, "z": {"type": "boolean"}}, **root).get("a", ("", False))[0]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": ["string", "null"]}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2.5]}, "double"),
        ({"const": 7}, "bigint"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"$ref": "#/definitions/d"}, {"type": "null"}]}, "date"),
        ({"allOf": [{"$ref": "#/definitions/d"}]}, "date"),
        ({"$ref": "#/definitions/a~1b"}, "boolean"),
        ({"$ref": "place.json"}, "STRUCT<`x`: double>"),
        ({"$ref": "place.json#/properties/x"}, "double"),
        ({"$ref": "https://shop/place"}, "STRUCT<`x`: double>"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<bigint>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "MAP<string, bigint>"),
        ({"type": "object", "properties": {"b": {"type": "string"}, "n": {"type": "null"}}}, "STRUCT<`b`: string>"),
        ({"properties": {"b": {"type": "string"}}}, "STRUCT<`b`: string>"),
        ({"type": "null"}, ""),
        ({"oneOf": [{"type": "null"}]}, ""),
        ({"type": "array", "items": {"type": "null"}}, ""),
        ({"type": "object", "properties": {"n": {"type": "null"}}}, ""),
    ],
)
def test_a_type_has_its_column(kind: Any, column: str) -> None:
    definitions = {"d": {"type": "string", "format": "date"}, "a/b": {"type": "boolean"}}
    place = {"$id": "https://shop/place", "type": "object", "properties": {"x": {"type": "number"}}}
    properties = {"a": kind, "z": {"type": "boolean"}}
    found = columns(("place.json", place), properties=properties, definitions=definitions)
    assert found.get("a", ("", False))[0].lower() == column.lower()


def test_what_draft_3_says_of_a_field_itself_makes_none_required() -> None:
    found = columns(properties={"id": {"type": "integer", "required": True}}, required=True)
    assert found == {"id": ("long", False)} or found["id"][1] is False


def test_what_must_be_there_and_not_null_is_required() -> None:
    number = {"type": "integer"}
    properties = {"id": number, "n": {"type": ["integer", "null"]}, "o": number}
    found = columns(properties=properties, required=["id", "n"])
    assert {name: required for name, (_, required) in found.items()} == {"id": True, "n": False, "o": False}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (True, "field a is True: it may hold anything"),
        ({}, "field a has no type: it may hold anything"),
        ({"type": ["integer", "string"]}, "field a is integer or string"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "field a is oneOf of 2 schemas"),
        ({"type": "array"}, "field a is an array without items"),
        ({"type": "object"}, "field a is an object without properties"),
        ({"type": "object", "additionalProperties": True}, "field a is an object without properties"),
        ({"type": "object", "properties": {"b": {}}}, "field a.b has no type"),
        ({"type": "array", "items": {}}, "field a.element has no type"),
        ({"type": "object", "additionalProperties": {"type": "array"}}, "field a.value is an array without items"),
        ({"type": "text"}, "field a has the unknown type text"),
        ({"$ref": "#/definitions/no"}, "field a refers to #/definitions/no, which isn't there"),
        ({"$ref": "no.json"}, "field a refers to no.json, which isn't there"),
        ({"$ref": "#anchor"}, "field a refers to #anchor, which isn't there"),
        ({"$ref": "#/properties/a"}, "field a is a schema within itself"),
        ({"$ref": "#"}, "is a schema within itself"),
        ({"type": "object", "properties": ["b"]}, "field a has the properties ['b']"),
        ({"oneOf": 3}, "field a has oneOf: 3"),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, "is a schema within itself"),
    ],
)
def test_what_no_column_holds_is_refused_by_name(kind: Any, message: str) -> None:
    with raises(NO_COLUMN_TYPE) as raised:
        one(kind)
    assert message in raised.value.message
    assert raised.value.message.startswith("schema id 7: ")


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({"type": "object"}, "schema id 7 has no properties"),
        ({"type": "array", "items": {"type": "string"}}, "schema id 7 has no properties"),
        ({"properties": {"a": {"type": "null"}}}, "schema id 7 has no field a column could hold"),
    ],
)
def test_a_schema_without_fields_gives_no_table(root: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns(**root)

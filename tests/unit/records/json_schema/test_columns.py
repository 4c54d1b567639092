"""Which columns a JSON Schema gives, and what it is told that gives none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.records.columns.type_text import spark_type_text
from calve.sink_core.records.json_schema.columns import json_schema_columns
from calve.sink_core.records.json_schema.decoder import json_schema
from tests.codes import names, raises


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
    ("kind", "named"),
    [
        (True, ["a", "True"]),
        ({}, ["a"]),
        ({"type": ["integer", "string"]}, ["a", "integer", "string"]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["a", "oneOf", 2]),
        ({"type": "array"}, ["a", "array", "items"]),
        ({"type": "object"}, ["a", "object", "properties"]),
        ({"type": "object", "additionalProperties": True}, ["a", "object", "properties"]),
        ({"type": "object", "properties": {"b": {}}}, ["a.b"]),
        ({"type": "array", "items": {}}, ["a.element"]),
        ({"type": "object", "additionalProperties": {"type": "array"}}, ["a.value", "array", "items"]),
        ({"type": "text"}, ["a", "text"]),
        ({"$ref": "#/definitions/no"}, ["a", "#/definitions/no"]),
        ({"$ref": "no.json"}, ["a", "no.json"]),
        ({"$ref": "#anchor"}, ["a", "#anchor"]),
        ({"$ref": "#/properties/a"}, ["a"]),
        ({"$ref": "#"}, [".a.a.a.a"]),
        ({"type": "object", "properties": ["b"]}, ["a", "properties", "['b']"]),
        ({"oneOf": 3}, ["a", "oneOf", 3]),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, ["a.element.element.", ".element.element"]),
    ],
)
def test_what_no_column_holds_is_refused_by_name(kind: Any, named: list[object]) -> None:
    with raises(Code.NO_COLUMN_TYPE) as raised:
        one(kind)
    names(raised.value.message, "schema id 7", *named)


@pytest.mark.parametrize(
    "root",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"properties": {"a": {"type": "null"}}},
    ],
)
def test_a_schema_without_fields_gives_no_table(root: Any) -> None:
    with raises(Code.NO_RECORD, "schema id 7"):
        columns(**root)

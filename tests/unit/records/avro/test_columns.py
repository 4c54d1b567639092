"""The columns of a table made for records of an Avro schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.records.avro.columns import avro_columns
from calve.sink_core.records.avro.schema import writer_schema
from tests.codes import names, raises
from tests.unit.records.avro.records import DECIMAL_5, POINT, fixed, logical, written_with


def test_columns_are_exact_and_optional_where_null_may_be() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "int", "doc": "a number"},
        {"name": "maybe", "type": ["null", "float"]},
        {"name": "price", "type": DECIMAL_5},
        {"name": "at", "type": logical("long", "timestamp-millis")},
        {"name": "local", "type": logical("long", "local-timestamp-micros")},
        {"name": "odd", "type": logical("long", "of-my-own")},
        {"name": "key", "type": logical("string", "uuid")},
        {"name": "none", "type": "null"},
        {"name": "points", "type": {"type": "array", "items": ["null", POINT]}},
        {"name": "again", "type": ["null", "Point"]},
        {"name": "by", "type": {"type": "map", "values": fixed(3)}},
    ]
    found = avro_columns(writer_schema("s", json.dumps({"type": "record", "name": "R", "fields": fields})))
    point = "struct<{}: x: required int, {}: y: optional int>"
    assert [(f.name, str(f.field_type), f.required, f.doc) for f in found.fields] == [
        ("id", "int", True, "a number"),
        ("maybe", "float", False, None),
        ("price", "decimal(5, 2)", True, None),
        ("at", "timestamptz", True, None),
        ("local", "timestamp", True, None),
        ("odd", "long", True, None),
        ("key", "uuid", True, None),
        ("points", f"list<{point.format(11, 12)}>", True, None),
        ("again", point.format(14, 15), False, None),
        ("by", "map<string, fixed[3]>", True, None),
    ]


@pytest.mark.parametrize(
    ("avro", "named"),
    [
        (["int", "string"], ["a", "int, string"]),
        (logical("bytes", "decimal", precision=39, scale=1), ["a", 39]),
        (["null", "R"], ["a", "R"]),
    ],
)
def test_a_field_without_a_column_is_named(avro: Any, named: list[object]) -> None:
    with raises(Code.NO_COLUMN_TYPE) as raised:
        avro_columns(written_with(avro))
    names(raised.value.message, *named)


@pytest.mark.parametrize("text", ['"string"', "string", '{"type": "array", "items": "int"}'])
def test_only_records_have_columns(text: str) -> None:
    with raises(Code.NO_RECORD):
        avro_columns(writer_schema("s", text))

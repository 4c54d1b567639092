"""Columns go into Hudi's schema and come back as they were; what Hudi has not is refused by name."""

from __future__ import annotations

import json

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.hudi.files.schema import from_avro, to_avro
from calve.sink_core.records.columns.type_text import schema_of, type_text
from tests.codes import raises

COLUMNS = {
    "id": "long",
    "price": "decimal(38, 9)",
    "tags": "list<string>",
    "of": "struct<x: int, y: list<struct<z: decimal(3, 1)>>>",
    "by_name": "map<string, double>",
    "at": "timestamptz",
    "local": "timestamp",
    "day": "date",
    "raw": "binary",
    "good": "boolean",
    "ratio": "float",
}


def test_columns_come_back_as_they_were() -> None:
    schema = from_avro(to_avro(schema_of(COLUMNS), "air.flights"), "air.flights")
    assert {field.name: type_text(field.field_type).replace(" ", "") for field in schema.fields} == {
        name: kind.replace(" ", "") for name, kind in COLUMNS.items()
    }


def test_hudi_s_own_columns_are_not_the_table_s() -> None:
    stored = json.loads(to_avro(schema_of({"id": "long"}), "air.flights"))
    stored["fields"].insert(0, {"name": "_hoodie_commit_time", "type": ["null", "string"], "default": None})
    assert [field.name for field in from_avro(json.dumps(stored), "air.flights").fields] == ["id"]


@pytest.mark.parametrize("kind", ["time", "uuid", "fixed[16]", "map<int, string>"])
def test_what_hudi_has_not_is_refused_by_name(kind: str) -> None:
    columns = {"of": f"struct<a: {kind}>"}
    with raises(Code.NO_HUDI_TYPE, "air.flights", "of.a"):
        to_avro(schema_of(columns), "air.flights")


def test_names_of_hudi_s_are_refused() -> None:
    with raises(Code.UNREADABLE_NAMES, "_hoodie_"):
        to_avro(schema_of({"_hoodie_x": "long"}), "air.flights")


def test_a_schema_that_is_none_is_refused() -> None:
    with raises(Code.FOREIGN_HUDI_TABLE, "air.flights"):
        from_avro("", "air.flights")

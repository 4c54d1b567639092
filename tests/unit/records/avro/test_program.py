"""What the kernel reads of Avro records, and which of them it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField

from calve.sink_core.packed import packed
from calve.sink_core.records.avro.program import program
from calve.sink_core.records.avro.types import Carriers
from calve.sink_core.records.columns.arrow import file_schema
from tests.unit.records.avro.records import encoded, written_with


def suspects(avro: Any, kind: IcebergType, values: list[bytes]) -> list[int]:
    """The places of those that are to be read on their own."""
    schema = written_with(avro)
    assert schema.record is not None
    columns = file_schema(Schema(NestedField(1, "a", kind, required=False)))
    made = program(schema, Carriers(schema).struct(schema.record["fields"], columns))
    assert made is not None
    found = made.read(packed(values), 0)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("avro", [["null", "string"], ["string", "null"]])
def test_of_a_type_that_no_column_takes_only_values_are_suspect(avro: list[str]) -> None:
    values = [encoded(avro, value) for value in (None, "text", None)]
    assert suspects(avro, LongType(), values) == [1]

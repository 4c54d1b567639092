"""What tables are given: the steps that are allowed, and nothing else; ids stay."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.evolution import Used, evolved, merged, merged_by_table
from calve.sink_core.records.columns.type_text import schema_of, type_text

ALL: tuple[EvolveStep, ...] = ("add_column", "widen", "make_optional")
TABLE = schema_of({"id": "int", "s": "struct<a: int>", "l": "list<struct<a: int>>", "m": "map<string, float>"})


def texts(schema: Schema) -> dict[str, str]:
    return {field.name: type_text(field.field_type) for field in schema.fields}


def one(kind: IcebergType, *, required: bool = False) -> Schema:
    return Schema(NestedField(1, "v", kind, required=required))


def test_fields_are_added_and_widened_wherever_they_stand_and_ids_stay() -> None:
    wanted = schema_of(
        {
            "m": "map<string, double>",
            "l": "list<struct<b: struct<c: date>>>",
            "new": "list<string>",
            "s": "struct<a: long, b: string>",
        }
    )
    found = evolved(TABLE, wanted, ALL, Used(column_id=40, schema_id=3))
    assert found is not None
    assert texts(found.schema) == {
        "id": "int",
        "s": "struct<a: long, b: string>",
        "l": "list<struct<a: int, b: struct<c: date>>>",
        "m": "map<string, double>",
        "new": "list<string>",
    }
    assert found.schema.schema_id == 4
    for name in TABLE.column_names:
        assert found.schema.find_field(name).field_id == TABLE.find_field(name).field_id
    added = sorted(set(found.schema.field_ids) - set(TABLE.field_ids))
    assert added == [41, 42, 43, 44, 45]
    assert found.changes == (
        "widen s.a from int to long",
        "add s.b string",
        "add l.element.b struct<c: date>",
        "widen m.value from float to double",
        "add new list<string>",
    )
    assert all(not field.required for field in found.schema.fields)
    assert evolved(found.schema, wanted, ALL) is None


@pytest.mark.parametrize("step", ALL)
def test_only_what_a_step_allows_is_changed(step: EvolveStep) -> None:
    table = Schema(NestedField(1, "v", IntegerType(), required=True))
    wanted = Schema(NestedField(1, "v", LongType()), NestedField(2, "w", StringType()))
    found = evolved(table, wanted, [step])
    changes = {"add_column": "add w string", "widen": "widen v from int to long", "make_optional": "make v optional"}
    assert found is not None
    assert found.changes == (changes[step],)
    assert evolved(table, wanted, []) is None


@pytest.mark.parametrize(
    ("have", "want", "then"),
    [
        (IntegerType(), LongType(), LongType()),
        (FloatType(), DoubleType(), DoubleType()),
        (DecimalType(5, 2), DecimalType(9, 2), DecimalType(9, 2)),
        (DecimalType(5, 2), DecimalType(9, 0), DecimalType(11, 2)),
        (DecimalType(5, 2), DecimalType(4, 2), None),
        (DecimalType(5, 2), DecimalType(9, 3), None),
        (DecimalType(38, 10), DecimalType(38, 0), None),
        (LongType(), IntegerType(), None),
        (LongType(), DoubleType(), None),
        (LongType(), StringType(), None),
        (IntegerType(), DoubleType(), None),
    ],
)
def test_types_are_widened_without_loss_or_not_at_all(
    have: IcebergType, want: IcebergType, then: IcebergType | None
) -> None:
    found = evolved(one(have), one(want), ALL)
    assert (found and found.schema.find_type("v")) == then


def test_a_field_that_identifies_rows_stays_required() -> None:
    table = Schema(NestedField(1, "v", IntegerType(), required=True), identifier_field_ids=[1])
    assert evolved(table, one(IntegerType()), ALL) is None
    wider = evolved(table, one(LongType()), ALL)
    assert wider is not None
    assert wider.schema.identifier_field_ids == [1]
    assert wider.schema.find_field("v").required


def test_what_tasks_want_is_merged_and_the_earlier_kind_wins() -> None:
    first = {"t": schema_of({"a": "long", "b": "date", "s": "struct<x: long>", "c": "string"})}
    second = {"t": schema_of({"a": "double", "b": "timestamp", "s": "struct<y: long>", "c": "long"})}
    found = merged_by_table([first, {}, second, {"u": schema_of({"z": "long"})}])
    assert texts(found["t"]) == {
        "a": "double",
        "b": "string",
        "s": "struct<x: long, y: long>",
        "c": "string",
    }
    assert sorted(found["t"].field_ids) == [1, 2, 3, 4, 5, 6]
    assert texts(found["u"]) == {"z": "long"}
    assert texts(merged([one(LongType()), one(DecimalType(38, 0))])) == {"v": "decimal(38, 0)"}

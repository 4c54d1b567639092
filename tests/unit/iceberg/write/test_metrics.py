"""Which columns have counts and bounds in the manifests, by the table's properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from calve.sink_core.iceberg.write.metrics import statistics_plan

FULL, COUNTS, NONE, SHORT = "full", "counts", "none", "truncate(16)"
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "at", StructType(NestedField(7, "text", StringType()), NestedField(8, "n", LongType()))),
    NestedField(4, "list", ListType(9, LongType())),
    NestedField(5, "odd name", StringType()),
    NestedField(6, "_kafka", StructType(NestedField(10, "offset", LongType()))),
)
USUAL = {1: FULL, 2: SHORT, 7: COUNTS, 8: COUNTS, 9: COUNTS, 5: SHORT, 10: FULL}


def plan(location: Path, properties: dict[str, str], order: SortOrder = UNSORTED_SORT_ORDER) -> dict[int, str]:
    metadata: TableMetadata = new_table_metadata(
        SCHEMA,
        UNPARTITIONED_PARTITION_SPEC,
        order,
        str(location),
        {f"write.metadata.metrics.{k}": v for k, v in properties.items()},
    )
    shown = {i: (column.mode.type.name.lower(), column.mode.length) for i, column in statistics_plan(metadata).items()}
    return {i: name if length is None else f"{name}({length})" for i, (name, length) in shown.items()}


@pytest.mark.parametrize(
    ("properties", "changed"),
    [
        ({}, {}),
        ({"default": "none"}, {1: NONE, 2: NONE, 7: NONE, 8: NONE, 9: NONE, 5: NONE, 10: NONE}),
        ({"default": "counts"}, {1: COUNTS, 2: COUNTS, 5: COUNTS}),
        ({"default": "truncate(4)"}, {2: "truncate(4)", 5: "truncate(4)"}),
        ({"default": "full"}, {2: FULL, 5: FULL}),
        ({"column.text": "counts", "column.odd name": "none"}, {2: COUNTS, 5: NONE}),
        # Bounds within structs where they are asked for; those of a list's elements say nothing of a row.
        ({"column.at.text": "truncate(8)", "column.at.n": "full"}, {7: "truncate(8)", 8: FULL}),
        ({"column.list.element": "full"}, {}),
        ({"column._kafka.offset": "counts"}, {10: COUNTS}),
        # Of wide tables the outer columns first, and `_kafka` in any case.
        ({"max-inferred-column-defaults": "2"}, {7: NONE, 8: NONE, 9: NONE, 5: NONE}),
        ({"max-inferred-column-defaults": "2", "default": "truncate(16)"}, {}),
        ({"max-inferred-column-defaults": "1", "column.text": "full"}, {2: FULL, 7: NONE, 8: NONE, 9: NONE, 5: NONE}),
    ],
)
def test_the_mode_of_each_column(tmp_path: Path, properties: dict[str, str], changed: dict[int, str]) -> None:
    assert plan(tmp_path, properties) == USUAL | changed


def test_what_the_table_is_sorted_by_has_bounds(tmp_path: Path) -> None:
    order = SortOrder(SortField(source_id=7), SortField(source_id=1))
    assert plan(tmp_path, {"default": "none"}, order) == dict.fromkeys(USUAL, NONE) | {1: FULL, 7: SHORT}
    assert plan(tmp_path, {"column.id": "counts"}, order) == USUAL | {1: COUNTS, 7: SHORT}
    assert plan(tmp_path, {"default": "full"}, order)[7] == SHORT

"""Counts of slices become those of partitions, which the ledger and VTTS rest on."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.loop.writing import merge_counts
from calve.sink_core.tables.batch import BatchPlan

RANGES = (OffsetRange("t", 0, 5, 30), OffsetRange("t", 1, 7, 7), OffsetRange("u", 0, 0, 10))
PLAN = BatchPlan("b1", "b0", RANGES, (), {}, 1_000, 1)


def counts(topic: str, start: int, end: int, **values: Any) -> PartitionCounts:
    return PartitionCounts(topic, 0, start, end, **values)


def test_each_partition_that_moves_has_one_row_for_all_of_its_offsets() -> None:
    merged = merge_counts(PLAN, [counts("t", 5, 20, records=15), counts("t", 20, 30, records=9, gaps=1)], ())
    assert [(c.topic, c.partition, c.start, c.end, c.records, c.gaps) for c in merged] == [
        ("t", 0, 5, 30, 24, 1),
        ("u", 0, 0, 10, 0, 0),
    ]


@pytest.mark.parametrize("timestamps", [(2_000, 1_000), (1_000, 2_000)])
def test_the_latest_timestamp_of_any_slice_is_the_partition_s(timestamps: tuple[int, int]) -> None:
    slices = [counts("t", 5, 20, max_timestamp_ms=timestamps[0]), counts("t", 20, 30, max_timestamp_ms=timestamps[1])]
    [first, idle] = merge_counts(PLAN, slices, ())
    assert (first.max_timestamp_ms, idle.max_timestamp_ms) == (2_000, -1)


def test_rows_by_table_are_added_up_and_tables_that_are_named_have_their_number() -> None:
    slices = [
        counts("t", 5, 20, written={"a": 3, "b": 1}, left_out={"b": 2}),
        counts("t", 20, 30, written={"a": 4}, left_out={"b": 5}),
    ]
    [first, idle] = merge_counts(PLAN, slices, ("a", "c"))
    assert (first.written, first.left_out) == ({"a": 7, "b": 1, "c": 0}, {"b": 7})
    assert (idle.written, idle.left_out) == ({"a": 0, "c": 0}, {})

"""Rows and files by source offsets."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.files.kafka_rows import may_hold, of_runs, place_fields, runs_of
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, kafka_field

FIELDS = place_fields(Schema(kafka_field(1)), struct=KAFKA_COLUMN)
RUNS = runs_of([OffsetRange("t", 1, 40, 50), OffsetRange("t", 1, 10, 20), OffsetRange("u", 0, 0, 5)])


def file(low: tuple[str, int, int] | None, high: tuple[str, int, int] | None) -> DataFile:
    bounds = [
        {i: to_bytes(kind, value) for i, kind, value in zip(FIELDS.ids, FIELDS.types, values, strict=True)}
        if values
        else None
        for values in (low, high)
    ]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="f",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
    )


def test_ranges_are_sorted_by_partition() -> None:
    assert RUNS[TopicPartition("t", 1)] == ((10, 20), (40, 50))


@pytest.mark.parametrize(
    ("low", "high", "may"),
    [
        (("t", 1, 19), ("t", 1, 39), True),
        (("t", 1, 20), ("t", 1, 39), False),
        (("t", 0, 0), ("t", 0, 99), False),
        (("a", 0, 0), ("z", 9, 99), True),
        (("v", 0, 0), ("z", 9, 99), False),
        (("t", 1, 50), ("u", 1, 60), False),
    ],
)
def test_a_file_s_bounds_tell_what_it_can_t_hold(
    low: tuple[str, int, int], high: tuple[str, int, int], may: bool
) -> None:
    assert may_hold(file(low, high), FIELDS, RUNS) is may


def test_a_file_without_bounds_may_hold_anything() -> None:
    assert may_hold(file(None, None), FIELDS, RUNS)


def test_rows_are_told_by_topic_partition_and_offset() -> None:
    topic = pa.array(["t", "t", "t", "t", "u", "u", None, "t"], pa.large_string())
    partition = pa.array([1, 1, 1, 0, 0, 1, 1, 1], pa.int32())
    offset = pa.array([10, 20, 49, 10, 4, 4, 10, None], pa.int64())
    assert of_runs(topic, partition, offset, RUNS).tolist() == [True, False, True, False, True, False, False, False]


def test_no_rows_are_no_rows() -> None:
    topic, partition, offset = (pa.array([], kind) for kind in (pa.large_string(), pa.int32(), pa.int64()))
    assert of_runs(topic, partition, offset, RUNS).tolist() == []

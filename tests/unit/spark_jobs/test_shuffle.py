"""Pieces on their way through Spark's shuffle: to the same task from everywhere, and none lost or doubled unseen."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError, TableUnusable
from calve.sink_core.iceberg.write.spread import PieceWriter
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.sink.write.task import TaskResult
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Outbox, rows_of
from calve.spark_jobs import shuffle
from tests.codes import raises

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
ROWS = [{"id": i, "s": f"partition {i % 9}"} for i in range(900)]


@pytest.fixture
def metadata(tmp_path: Path) -> TableMetadata:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))
    return new_table_metadata(SCHEMA, spec, UNSORTED_SORT_ORDER, str(tmp_path))


def sent(metadata: TableMetadata, *parts: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Rows by bucket, as the tasks that write get them."""
    found: dict[int, list[dict[str, Any]]] = {}
    for part in parts:
        with Outbox(4) as outbox:
            writer = PieceWriter(metadata, "hash", outbox, 0, Budget(1_000))
            for start in range(0, len(part), 50):
                writer.write(pa.RecordBatch.from_pylist(part[start : start + 50], schema=arrow_schema(SCHEMA)))
            assert writer.close() == []
            assert outbox.sent == {0: len(part)}
            for piece in outbox.pieces():
                rows = rows_of(piece.data, arrow_schema(SCHEMA))
                assert piece.rows == rows.num_rows
                found.setdefault(piece.bucket, []).extend(rows.to_pylist())
    return found


def test_a_partition_goes_to_one_task_whoever_sends_it(metadata: TableMetadata) -> None:
    found = sent(metadata, ROWS[:333], ROWS[333:])
    assert sorted((row for rows in found.values() for row in rows), key=lambda row: row["id"]) == ROWS
    partitions = [{row["s"] for row in rows} for rows in found.values()]
    assert sum(map(len, partitions)) == 9
    assert len(found) > 1


def row(kind: int, task: int, given: object) -> dict[str, Any]:
    return {"kind": kind, "task": task, "data": pickle.dumps(given)}


class Spec:
    """As much of one as results are put together by."""

    tables = ()


READ = [row(shuffle._RESULT, task, shuffle._Read(TaskResult({}, ()), {0: 10})) for task in range(2)]


def written(*taken: tuple[int, int]) -> dict[str, Any]:
    return row(shuffle._WRITTEN, -1, shuffle._Written({}, {(task, 0): rows for task, rows in taken}))


def test_what_was_sent_is_what_came() -> None:
    spec: Any = Spec()
    assert len(shuffle._results(spec, 2, [*READ, written((0, 4), (1, 10)), written((0, 6))])) == 4
    for wrong in ([written((0, 4), (1, 10))], [written((0, 10), (1, 10)), written((1, 1))], [written((0, 9), (1, 11))]):
        with raises(Code.SPARK_LOST, 2, 20, of=RetriableError):
            shuffle._results(spec, 2, [*READ, *wrong])
    with raises(Code.SPARK_LOST, 1, 2, 10, of=RetriableError):
        shuffle._results(spec, 2, [READ[0], written((0, 10))])


def test_the_error_of_the_first_task_that_failed_is_raised() -> None:
    spec: Any = Spec()
    failed = [row(shuffle._FAILED, task, TableUnusable(f"by task {task}")) for task in (3, 1)]
    with raises(Code.TABLE_UNUSABLE, "task", 1):
        shuffle._results(spec, 4, [*READ, *failed])


def test_a_task_without_transforms_starts_without_duckdb() -> None:
    code = "import calve.sink_core.sink.write.task, calve.spark_jobs.shuffle, sys; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

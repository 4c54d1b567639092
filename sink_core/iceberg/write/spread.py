"""Rows of a table that go to the tasks that write their partitions, or their ranges of its sort order."""

from __future__ import annotations

import zlib

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.iceberg.files.partition import split
from calve.sink_core.iceberg.files.sort_order import Order
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.gathered import Gathered
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format.target import Distribution
from calve.sink_core.tables.pieces import Outbox

_ONE_IN = 100
"""Of so many rows the key of one is looked at to find the boundaries of ranges."""


class PieceWriter:
    """In place of a table's writer: rows go to the task that writes their partition, or to any one for `range`, whose
    boundaries are known once all tasks have read.
    """

    def __init__(
        self, metadata: TableMetadata, distribution: Distribution, outbox: Outbox, table: int, budget: Budget
    ) -> None:
        self._gathered = Gathered(metadata, self, budget, budget.buffer_bytes)
        self._metadata, self._outbox, self._table = metadata, outbox, table
        self._order = Order.of_files(metadata) if distribution == "range" else None

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.add(rows)

    def close(self) -> list[WrittenFile]:
        """No files: those are written by others."""
        self.flush()
        return []

    def abort(self) -> None:
        self._gathered.take()

    def flush(self) -> None:
        """Hand on what is gathered."""
        rows = self._gathered.take()
        if rows is None:
            return
        if self._order is not None:
            self._outbox.put_sample(self._table, self._order.keys(rows.take(list(range(0, len(rows), _ONE_IN)))))
            self._outbox.put(0, self._table, rows)
            return
        parts: dict[int, list[pa.Table]] = {}
        for partition, part in split(rows, self._metadata.spec(), self._metadata.schema()):
            # Python's own hash of a text differs from process to process.
            bucket = zlib.crc32(partition.to_path().encode()) % self._outbox.buckets if partition else 0
            parts.setdefault(bucket, []).append(part)
        for bucket, tables in parts.items():
            self._outbox.put(bucket, self._table, pa.concat_tables(tables))

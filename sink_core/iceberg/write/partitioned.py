"""Arrow batches into the Parquet files of a table, partition by partition, in bounded memory, whatever the files are.

Rows are gathered up to a row group's size, then split by partition once, and each part becomes a row group of its
partition's open file. A file that has reached its target size is closed, and so is the least recently used one when
too many are open; memory therefore grows neither with the batch nor with the number of partitions. Writers of one
task share what they may hold, so that it doesn't grow with the number of tables either.

In a table with a sort order all of a file is in order: what was gathered is sorted, and its files are closed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.files.partition import Partition, split
from calve.sink_core.iceberg.files.sort_order import Order
from calve.sink_core.iceberg.write.gathered import Gathered
from calve.sink_core.iceberg.write.parquet import ParquetSettings
from calve.sink_core.tables.budget import Budget

W_co = TypeVar("W_co", covariant=True)
W = TypeVar("W")


class OpenFile(Protocol[W_co]):
    """A file being written; `size` in bytes so far."""

    @property
    def size(self) -> int: ...

    def append(self, rows: pa.Table, /) -> None:
        """One row group."""
        ...

    def finish(self) -> W_co:
        """Close it; its description."""
        ...


Opens = Callable[[Partition | None, pa.Table], OpenFile[W]]
"""A new file of a partition, None if there are none, and the first rows that will be appended to it."""


class PartitionedWriter(Generic[W]):
    """Writes files of one table, by its current schema and default partition spec; `opens` makes them.

    `budget` bounds what is held in memory, shared with other writers.
    """

    def __init__(self, metadata: TableMetadata, opens: Opens[W], settings: ParquetSettings, budget: Budget) -> None:
        self._files = _Files(opens, settings, budget)
        self._spec, self._iceberg_schema = metadata.spec(), metadata.schema()
        self._order = Order.within_files(metadata)
        # Sorted files get no more rows once they are closed, and so are better large.
        most = budget.buffer_bytes
        if self._order is None:
            most = min(settings.row_group_size, settings.target_file_size, most)
        self._gathered = Gathered(metadata, self, budget, most)
        self.schema = self._gathered.schema

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, columns by name; an optional column they lack becomes null.

        Raises TableUnusable if they lack a required one or a column is of another type than the table's.
        """
        self._gathered.add(rows)

    def close(self) -> list[W]:
        """Write what is left, close all files, and describe them. The writer is done with then."""
        self.flush()
        return self._files.close_all()

    def abort(self) -> None:
        """Close what is open, whatever state it is in; the files are nobody's and left to orphan cleanup."""
        self._gathered.take()
        with suppress(OSError):
            self._files.close_all()

    def flush(self) -> None:
        """Write out what is gathered."""
        rows = self._gathered.take()
        if rows is None:
            return
        for partition, part in split(rows, self._spec, self._iceberg_schema):
            if self._order is not None:
                self._files.write_whole(partition, self._order.sort(part))
                continue
            self._files.append(partition, part)


class _Files(Generic[W]):
    """The open files of a table by partition, and the finished ones."""

    def __init__(self, opens: Opens[W], settings: ParquetSettings, budget: Budget) -> None:
        self._opens, self._settings, self._budget = opens, settings, budget
        self._open: dict[Record | None, OpenFile[W]] = {}
        self._finished: list[W] = []

    def append(self, partition: Partition | None, rows: pa.Table) -> None:
        key = partition.partition if partition else None
        self._budget.touched(self, key)
        if key not in self._open:
            self._open[key] = self._opens(partition, rows)
        self._open[key].append(rows)
        if self._open[key].size >= self._settings.target_file_size:
            self.close(key)

    def write_whole(self, partition: Partition | None, rows: pa.Table) -> None:
        """Files with these rows and no others, in their order."""
        most = max(1, len(rows) * self._settings.row_group_size // max(1, rows.nbytes))
        for start in range(0, len(rows), most):
            self.append(partition, rows.slice(start, most))
        self.close_all()

    def close(self, key: Record | None) -> None:
        """Finish the file of a partition."""
        self._budget.closed(self, key)
        self._finished.append(self._open.pop(key).finish())

    def close_all(self) -> list[W]:
        """Every file that was finished until now."""
        for key in list(self._open):
            self.close(key)
        return self._finished

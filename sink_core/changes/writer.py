"""Changes of a table into files: data files with the rows that come, equality deletes with the keys that go.

The changes of a key must all go through one writer. It holds the last change of each of its keys until it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from sink_core.changes.equality import keys_only
from sink_core.changes.fold import Folded, folded, last_by_key
from sink_core.changes.rows import places_of
from sink_core.tables.budget import Budget
from sink_core.tables.files import WrittenFile
from sink_core.tables.writer import TableWriter

FOLD_BYTES = 32 * 1024 * 1024
"""Of Arrow, gathered before the changes of each key become one."""


class ChangeWriter:
    """Writes the changes of `table` by its key (field ids). `topics` are those that the changes' sources are of, all
    else is as for `TableWriter`.
    """

    def __init__(
        self,
        io: FileIO,
        metadata: TableMetadata,
        file_prefix: str,
        *,
        key: Sequence[int],
        table: str,
        topics: Sequence[str],
        target_file_size: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        budget = budget or Budget()
        self._key, self._table, self._topics = key, table, topics
        self._places = places_of(key, metadata.schema())
        self._rows = TableWriter(io, metadata, file_prefix, target_file_size=target_file_size, budget=budget)
        self._keys = TableWriter(
            io, keys_only(metadata, key), f"{file_prefix}-deletes", target_file_size=target_file_size, budget=budget
        )
        self._gathered: list[pa.Table] = []
        self._bytes, self._limit = 0, FOLD_BYTES

    def write(self, changes: pa.RecordBatch) -> None:
        """Take in changes with the columns of `change_schema`. Raises BadRecord as `last_by_key` does."""
        self._gathered.append(pa.Table.from_batches([changes]))
        self._bytes += changes.nbytes
        if self._bytes > self._limit:
            self._fold()
            # Where most keys differ, folding what is folded again and again would take the square of the time.
            self._limit = max(FOLD_BYTES, 2 * self._bytes)

    def close(self) -> list[WrittenFile]:
        """Write what the last changes say, close all files, and describe them. The writer is done with then."""
        if self._gathered:
            found = self._fold()
            self._gathered = []
            for batch in found.rows.to_batches():
                self._rows.write(batch)
            for batch in found.keys.to_batches():
                self._keys.write(batch)
        keys = (replace(file, equality_ids=tuple(self._key)) for file in self._keys.close())
        return [*self._rows.close(), *keys]

    def abort(self) -> None:
        """As `TableWriter.abort`."""
        self._gathered = []
        self._rows.abort()
        self._keys.abort()

    def _fold(self) -> Folded:
        changes = pa.concat_tables(self._gathered)
        last = last_by_key(changes, self._places, table=self._table, topics=self._topics)
        self._gathered, self._bytes = [last], last.nbytes
        return folded(last, self._places)

"""Changes of a table into files: data files with the rows that come, equality deletes with the keys that go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.iceberg.changes.equality import keys_only
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.changes.fold import folded
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.folding import Folding
from calve.sink_core.tables.row_changes import RowChanges


class ChangeWriter:
    """Writes the `changes` of `table`. `topics` are those that the changes' sources are of, all else is as for
    `TableWriter`. The changes of a key must all go through one writer.
    """

    def __init__(
        self,
        io: FileIO,
        metadata: TableMetadata,
        file_prefix: str,
        *,
        changes: RowChanges,
        table: str,
        topics: Sequence[str],
        target_file_size: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        budget = budget or Budget()
        self._changes = changes
        self._folding = Folding(metadata.schema(), changes, table=table, topics=topics)
        self._rows = TableWriter(io, metadata, file_prefix, target_file_size=target_file_size, budget=budget)
        self._keys = TableWriter(
            io,
            keys_only(metadata, changes.key),
            f"{file_prefix}-deletes",
            target_file_size=target_file_size,
            budget=budget,
        )
        self.write, self.hold_against = self._folding.write, self._folding.hold_against

    def close(self) -> list[WrittenFile]:
        """Write what the last changes say, close all files, and describe them. The writer is done with then."""
        if (last := self._folding.taken()) is not None:
            found = folded(last, self._folding.places, soft=self._changes.soft)
            for batch in found.rows.to_batches():
                self._rows.write(batch)
            for batch in found.keys.to_batches():
                self._keys.write(batch)
        keys = (replace(file, equality_ids=tuple(self._changes.key)) for file in self._keys.close())
        return [*self._rows.close(), *keys]

    def abort(self) -> None:
        """As `TableWriter.abort`."""
        self._folding.forget()
        self._rows.abort()
        self._keys.abort()

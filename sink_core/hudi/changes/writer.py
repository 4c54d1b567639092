"""Changes of a Hudi table into staged files: the last change of each key, as a commit upserts it.

A file has the table's columns, and of a table with hard deletes `_hoodie_is_deleted` before them: by it Hudi's writers
tell rows that go. It is no file of the table: Hudi writes those.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from calve.sink_core.hudi.files.parquet import without_ids
from calve.sink_core.hudi.files.schema import IS_DELETED
from calve.sink_core.hudi.files.staged import HudiFile, file_name, new_file_id
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.iceberg.write.parquet import parquet_settings
from calve.sink_core.records.changes.rows import DELETES
from calve.sink_core.tables.folding import Folding
from calve.sink_core.tables.row_changes import RowChanges

# Spark reads row groups side by side.
_OPTIONS: Mapping[str, Any] = {"row_group_size": 200_000, "store_schema": False, "use_dictionary": True}


class HudiChangeWriter:
    """Writes the `changes` of `table` into `folder`, a folder of its staged files. `topics` are those that the changes'
    sources are of. The changes of a key must all go through one writer.
    """

    def __init__(
        self,
        folder: Path,
        metadata: TableMetadata,
        instant: str,
        *,
        changes: RowChanges,
        table: str,
        topics: Sequence[str],
    ) -> None:
        self._folder, self._instant, self._soft = folder, instant, changes.soft
        self._options = parquet_settings(metadata).writer_options
        self._folding = Folding(metadata.schema(), changes, table=table, topics=topics)
        self.write, self.hold_against = self._folding.write, self._folding.hold_against

    def close(self) -> list[HudiFile]:
        """Write what the last changes say, and describe the file. The writer is done with then."""
        last = self._folding.taken()
        if last is None:
            return []
        self._folder.mkdir(parents=True, exist_ok=True)
        name = file_name(new_file_id(), self._instant)
        path = self._folder / name
        rows = _rows(last, marked=not self._soft)
        options: dict[str, Any] = {**self._options, **_OPTIONS}
        pq.write_table(rows, path, **options)
        return [HudiFile("", name, self._folder.name, "", len(rows), path.stat().st_size)]

    def abort(self) -> None:
        """Let go of what is gathered."""
        self._folding.forget()


def _rows(last: pa.Table, *, marked: bool) -> pa.Table:
    """As they are upserted: columns of the table, which may all be null in one that goes."""
    columns = {field.name: last.column(at) for at, field in enumerate(last.schema) if at < len(last.schema) + DELETES}
    fields = [without_ids(last.schema.field(name)) for name in columns]
    table = pa.table(list(columns.values()), names=list(columns)).cast(pa.schema(fields))
    return table.add_column(0, IS_DELETED, last.column(DELETES)) if marked else table

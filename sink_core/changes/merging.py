"""Row changes that Spark merges into a table, out of the files of the batches that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import TimeType, UUIDType

from sink_core.control.events import DataWritten
from sink_core.control.logged import Logged
from sink_core.errors import TableUnusable
from sink_core.tables.manifests import entries_of


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of rows, or of keys, that a batch wrote; `batch` is its place among those that are merged."""

    batch: int
    file: DataFile
    keys: bool


def staged_files(io: FileIO, events: Sequence[Logged[DataWritten]]) -> list[StagedFile]:
    """Those of the batches, which no snapshot names."""
    return [
        StagedFile(batch, entry.data_file, ref.deletes)
        for batch, logged in enumerate(events)
        for ref in logged.event.added
        for entry in entries_of(io, ref)
    ]


def can_merge(events: Sequence[Logged[DataWritten]]) -> bool:
    """Whether all that the events bring are row changes, and there are any. Rows that somebody appended, or a range
    job, have no keys beside them.
    """
    return any(logged.event.added for logged in events) and all(
        logged.event.deletes for logged in events if logged.event.added
    )


def check_mergeable(schema: Schema, *, table: str) -> None:
    """Raise TableUnusable for columns that Spark takes otherwise than they are."""
    for field in index_by_id(schema).values():
        if isinstance(field.field_type, TimeType | UUIDType):
            name = schema.find_column_name(field.field_id)
            raise TableUnusable(
                f"{table}: column {name} is {field.field_type}, which Spark can't merge",
                hint="leave write_mode out for this table, or give it a column of another type",
            )


def rows_in_file(io: FileIO, metadata: TableMetadata, file: DataFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """A staged file's rows in the columns of `schema`, which are the table's or some of them, by their ids."""
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    # Its public method reads a whole file into memory.
    yield from scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {})  # pyright: ignore[reportPrivateUsage]

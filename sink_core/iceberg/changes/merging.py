"""Row changes that Spark merges into a table, out of the files of the batches that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import TimeType, UUIDType

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Logged
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.tables.batch import ToMerge
from calve.sink_core.tables.log.events import DataWritten

MOST_BYTES, MOST_BATCHES = 2**30, 500
"""Of files that one merge takes, and of batches that wrote them: what took longer than a run may would be begun anew by
the next one, with more. One batch is taken whatever it has.
"""


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


@dataclass(frozen=True, slots=True)
class Part:
    """The first of the events, as many as one commit may have. `merges`: it does so by a merge."""

    events: Sequence[Logged[DataWritten]]
    merges: bool


def first_part(events: Sequence[Logged[DataWritten]], *, merged: bool) -> Part:
    """Those that are written alike, or bring nothing; of those that are merged as many as one merge takes. `merged`:
    the table's changes are to be merged, as far as its batches are changes with their keys; what some batches say of
    themselves can't be brought in otherwise.
    """
    ways = [_way(logged.event, merged=merged) for logged in events]
    first = next((way for way in ways if way is not None), (False, None))
    end = next((at for at, way in enumerate(ways) if way not in (None, first)), len(ways))
    return Part(events[: _one_merge(events[:end]) if first[0] else end], merges=first[0])


def _one_merge(events: Sequence[Logged[DataWritten]]) -> int:
    """How many of the events one merge takes."""
    size, batches = 0, 0
    for at, logged in enumerate(events):
        size += sum(ref.data_bytes for ref in logged.event.added)
        batches += bool(logged.event.added)
        if batches > 1 and (size > MOST_BYTES or batches > MOST_BATCHES):
            return at
    return len(events)


def _way(event: DataWritten, *, merged: bool) -> tuple[bool, ToMerge | None] | None:
    """Whether the event's changes are merged, and how, as far as it says; None if it brings nothing. Rows that somebody
    appended, or a range job, have no keys beside them.
    """
    if not event.added:
        return None
    to_merge = event.to_merge
    merges = event.deletes and (merged or (to_merge is not None and to_merge.needs_merge))
    return merges, to_merge if merges else None


def check_known(to_merge: ToMerge, schema: Schema, *, table: str) -> None:
    """Raise TableUnusable if the table has a column no more that changes waiting for it are merged by."""
    ids = index_by_id(schema)
    for field_id in (*to_merge.key, *([] if to_merge.order is None else [to_merge.order])):
        if field_id not in ids:
            raise TableUnusable(
                f"{table}: pending changes are to be merged by the column with id {field_id}, which it lacks now",
                hint="somebody dropped it before a commit; make a schema that has it the table's current one again",
                code=Code.MERGE_COLUMN_GONE,
            )


def check_mergeable(schema: Schema, *, table: str) -> None:
    """Raise TableUnusable for columns that Spark takes otherwise than they are."""
    for field in index_by_id(schema).values():
        if isinstance(field.field_type, TimeType | UUIDType):
            name = schema.find_column_name(field.field_id)
            raise TableUnusable(
                f"{table}: column {name} is {field.field_type}, which Spark can't merge",
                hint="leave write_mode out for this table, or give it a column of another type",
                code=Code.MERGE_TYPE,
            )

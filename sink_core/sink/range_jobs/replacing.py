"""What a replay is planned on: the ranges it may replace, and the data files of the head that hold rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError, TableUnusable
from calve.sink_core.iceberg.examine.table import feeding_pipelines, has_delete_files
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.replace.head_files import HeadFile, files_holding
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.recount import compacted
from calve.sink_core.offset_sets import ranges_of
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, has_kafka_column
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.selected import Wanted, moved_by, selected, whole_rows
from calve.sink_core.tables.history.contents import given_up
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.range_parts import RangeJob
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class Replacing:
    """The head that a replay was planned on, its data files that may hold rows of the ranges, and how many rows the
    ledger says that ranges made of whole rows of it have.
    """

    base_snapshot_id: int | None
    files: tuple[HeadFile, ...]
    expected: Mapping[OffsetRange, int]


def ranges_to_replace(
    view: TableView, state: CommitState, rows: Sequence[LedgerRow], wanted: Wanted
) -> tuple[OffsetRange, ...]:
    """What the table has of what is wanted. `rows` were read first, then `state`, then `view`: what the table
    lacks of the rows is among the pending events.

    Raises TableUnusable where that can't be told, RetriableError if a replay is still to be committed.
    """
    pending = state.pending(view.table, view.uuid, view.stored_offset)
    # Of a batch the ledger tells that the table lacks it; of a range job nothing does.
    if any((logged.event.batch_id, view.table) in state.range_jobs for logged in pending):
        raise RetriableError(
            f"{view.table}: another range job was published meanwhile", hint="run again", code=Code.OTHER_RANGE_JOB
        )
    published_at = {batch_id: batch.offset for batch_id, batch in state.batches.items()}
    gone = given_up(view, {row.batch_id for row in rows}, published_at)
    absent = dict.fromkeys(gone, "was given up by an answer to a finding")
    absent |= dict.fromkeys((e.event.batch_id for e in pending), "is published and not committed yet")
    jobs = state.range_jobs_of(view.table)
    return ranges_of(selected(view.table, rows, wanted, jobs, absent))


def check_replaceable(session: Session, table: Table, name: str) -> None:
    """Raise TableUnusable for a table whose rows can't be told by their source offsets, or that has delete files."""
    if not has_kafka_column(table.schema(), table=name):
        raise TableUnusable(
            f"{name}: has no column {KAFKA_COLUMN}: which rows are of which offsets can't be told",
            hint="set `kafka_column: true` for new tables; to read everything into this one again, drop it and choose "
            "`refill`",
            code=Code.NO_KAFKA_COLUMN,
        )
    strangers = sorted(feeding_pipelines(table) - {session.pipeline.tag})
    if strangers:
        raise TableUnusable(
            f"{name}: also fed by {', '.join(strangers)}: which rows are of which pipeline can't be told",
            hint="only tables of one pipeline can be replayed",
            code=Code.FED_BY_OTHERS,
        )
    if has_delete_files(table, name):
        raise TableUnusable(
            f"{name}: has delete files, which are for data files as they are",
            hint="have Spark's rewrite_data_files merge them (delete-file-threshold 1); then start the replay again",
            code=Code.DELETE_FILES,
        )


def check_not_compacted(session: Session, ranges: Sequence[OffsetRange]) -> None:
    """Raise TableUnusable for topics of which Kafka deletes single records: their rows would be gone from the table."""
    thinned = compacted(session.admin, {part.topic for part in ranges}, timeout_s=ADMIN_TIMEOUT_S)
    if thinned:
        raise TableUnusable(
            f"{', '.join(sorted(thinned))}: cleanup.policy is compact: records that the table has may be gone",
            hint="records of compacted topics can't be replayed; nothing was written",
            code=Code.COMPACTED,
        )


def replacing(
    table: Table, view: TableView, ranges: Sequence[OffsetRange], rows: Sequence[LedgerRow], jobs: Iterable[RangeJob]
) -> Replacing:
    """What a replay of `ranges` takes the place of; `jobs` are the table's.

    Raises TableUnusable for files that can't be written again.
    """
    name = view.table
    files = files_holding(table, name, ranges, struct=KAFKA_COLUMN)
    for file in files:
        if not file.writable:
            raise TableUnusable(
                f"{name}: {file.path} lies under partition spec {file.spec_id}, of which a column was dropped",
                hint="have Spark's rewrite_data_files write it under the current spec; then start the replay again",
                code=Code.COLUMN_OF_SPEC,
            )
    return Replacing(view.head, files, whole_rows(name, ranges, rows, moved_by(jobs)))

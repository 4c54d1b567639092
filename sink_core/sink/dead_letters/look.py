"""What a replay of dead letters is planned on: the dead letters of the head, the ledger, and what the tables have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.iceberg.examine.table import has_delete_files
from calve.sink_core.iceberg.format.table import iceberg
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.replace.head_files import HeadFile
from calve.sink_core.iceberg.verify.files import ReadableFiles, head_tasks
from calve.sink_core.offset_sets import by_partition, ranges_of, shown
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, has_kafka_column
from calve.sink_core.sink.dead_letters.choice import Chosen, Offsets, choose
from calve.sink_core.sink.ledger.stored_offsets import NONE, Held
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.look import ledger_rows, places_in
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.proof import Evidence

_COLUMNS = ("batch_id", "topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class DeadLetterPlan:
    """What a job tries: `letters` is their table as loaded, `files` are its data files that may hold them, and `tables`
    get them.
    """

    chosen: Chosen
    letters: LoadedTable
    files: tuple[HeadFile, ...]
    tables: Mapping[str, LoadedTable]


def plan_letters(
    session: Session, wanted: Sequence[OffsetRange], tried: Mapping[TopicPartition, BitMap64]
) -> DeadLetterPlan | None:
    """Choose among the dead letters of the head those in `wanted` (all if empty) and not in `tried`.

    To be called after the token and the log were read, and what is published was committed; None if another replay was
    published since. Raises FindingError and TableUnusable.
    """
    pipeline = session.pipeline
    name = pipeline.dead_letter_table
    rows = ledger_rows(session)
    session.log.refresh_to_end()
    # What a name with placeholders stands for comes with its first record.
    there = [t.name for t in pipeline.tables if t.explicit or session.load([t.name])[t.name] is not None]
    loaded = {table: _load(session, table) for table in (*there, name)}
    found = loaded.pop(name)
    letters = iceberg(found)
    state = session.log.state
    if any(e.event.removes for e in state.pending(name, found.uuid, found.stored_offset)):
        return None
    if has_delete_files(letters, name):
        raise TableUnusable(
            f"{name}: has delete files: which dead letters are left can't be told by its data files alone",
            hint="have Spark's rewrite_data_files merge them (delete-file-threshold 1); then run again",
            code=Code.DELETE_FILES,
        )
    places, files = _places(letters, name, by_partition(wanted) if wanted else None, tried)

    def holds(table: str, offsets: Offsets) -> Offsets:
        return _holds(session, loaded[table], table, offsets)

    jobs = list(state.range_jobs.values())
    chosen = choose(places, rows, list(loaded), name, jobs, holds, pipeline.changing)
    targets = {table: loaded[table] for table in chosen.tables}
    for each in (*targets.values(), found):
        each.check_usable()
    return DeadLetterPlan(chosen, found, files.holding(ranges_of(chosen.offsets), struct=None), targets)


def _load(session: Session, name: str) -> LoadedTable:
    found = session.load([name])[name]
    if found is None:
        raise dropped_meanwhile(name)
    return found


def _places(
    table: Table, name: str, wanted: Offsets | None, tried: Mapping[TopicPartition, BitMap64]
) -> tuple[dict[tuple[str, TopicPartition], BitMap64], ReadableFiles]:
    """The dead letters by batch and partition, and the table's data files.

    Raises TableUnusable for one that is there twice: as two records it would be in the tables twice.
    """
    evidence, found, all_of = Evidence(), dict[tuple[str, TopicPartition], BitMap64](), Held()
    files = ReadableFiles(table, name, head_tasks(table, name, evidence) or [], evidence)
    for batch in files.read(_COLUMNS):
        all_of.take(*(batch.column(c) for c in _COLUMNS[1:]))
        for batch_id, topic, partition, offset in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            at = TopicPartition(topic, partition)
            if (wanted is None or offset in wanted.get(at, NONE)) and offset not in tried.get(at, NONE):
                found.setdefault((batch_id, at), BitMap64()).add(offset)
    if evidence.violations:
        raise TableUnusable(
            f"{name}: can't be read as a whole: {evidence.violations[0].message}",
            hint="calve verify FILE names more",
            code=Code.FILES_GONE,
        )
    twice = [each for at, offsets in sorted(all_of.twice.items()) for each in shown(at, offsets)]
    if twice:
        raise TableUnusable(
            f"{name}: {twice[0]} is there more than once: a replay would put it into the tables as often",
            hint="somebody has added it again; delete one of them by hand",
            code=Code.LETTER_TWICE,
        )
    return found, files


def _holds(session: Session, table: LoadedTable, name: str, offsets: Offsets) -> Offsets:
    if not has_kafka_column(table.schema, table=name):
        raise TableUnusable(
            f"{name}: has no column {KAFKA_COLUMN}: whether it has dead letters that were moved before can't be told",
            hint="the dead letters were rolled back after a replay; leave these ranges out",
            code=Code.LETTERS_ROLLED_BACK,
        )
    seen = places_in(session, name, [KAFKA_COLUMN], struct=KAFKA_COLUMN)
    return {at: wanted & seen.get(at, NONE) for at, wanted in offsets.items()}

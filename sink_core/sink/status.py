"""`status`: where a pipeline stands, from Kafka, the control log and the tables. Reads only, and guesses nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from calve.sink_core.control import checks
from calve.sink_core.control.blockers import open_transactions, silent_ones
from calve.sink_core.control.events import Logged
from calve.sink_core.control.status import (
    Blocker,
    ControlTopicStatus,
    InFlight,
    PartitionStatus,
    Pause,
    TopicStatus,
    age_s,
    control_topic_of,
    in_flight,
    iso,
    lines_before,
    lines_behind,
    long_log,
    partition_statuses,
    pause_of,
    topic_statuses,
)
from calve.sink_core.counts import not_stored
from calve.sink_core.errors import CalveError, Unreachable
from calve.sink_core.finding import Finding
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import Silent, describe_topics, end_offsets, log_starts
from calve.sink_core.offsets import Position, Positions, TopicPartition
from calve.sink_core.records.decode.others import sum_dropped
from calve.sink_core.report import BAD, WARNING, Line, Shown, Table
from calve.sink_core.sink.dead_letters.misfits import Misfits, misfits
from calve.sink_core.sink.loop.held import check_writable, held_back
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.verify.world import table_names, unchanged
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tasks import WrittenBy
from calve.sink_core.wording import by_text, counted, dropped_text

LAST_BATCHES = 100
"""That fields are counted over which have no column."""

# A living publisher's transaction is open for milliseconds.
_PENDING_S = 3.0
_LAST_BATCH_COUNTS = ("records", "value_bytes", "unrouted", "filtered", "dead_lettered", "tombstones")


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch that was published. Of its records `unrouted` ones no table took, `filtered` ones SQL left out.

    `written_by` is the engine, None of a batch of an earlier version.
    """

    batch_id: str
    published_at: str
    records: int
    value_bytes: int
    unrouted: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    tombstones: int = 0
    written_by: WrittenBy | None = None

    @property
    def not_stored(self) -> dict[str, int]:
        """As `not_stored` of `sink_core/tables/batch`."""
        return not_stored(self.dead_lettered, self.filtered, self.unrouted, self.tombstones)

    def __str__(self) -> str:
        others = "".join(f", {number:,} {what}" for what, number in self.not_stored.items())
        moved = f"{self.records:,} records, {self.value_bytes:,} bytes{others}"
        return f"{self.batch_id} at {self.published_at}: {moved}{by_text(self.written_by)}"


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What is published for a table and not in it yet. `oldest_age_s` is None if that is nothing."""

    batches: int
    rows: int
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table; ids as text, since they exceed what JSON readers keep exactly.

    `valid_through` (ISO 8601, UTC) says up to which record time the table is complete, `behind_s` how long ago that is.
    `rows` is None where deletes stand beside the files, so that only reading tells. `dropped` counts, by dotted name,
    values of fields that it has no column for, in the last batches (`LAST_BATCHES`).
    """

    table: str
    exists: bool
    rows: int | None = 0
    files: int = 0
    bytes: int = 0
    snapshots: int = 0
    head_snapshot: str | None = None
    stored_offset: int = 0
    valid_through: str | None = None
    behind_s: float | None = None
    uncommitted: Uncommitted = Uncommitted(0, 0, None)
    finding: str | None = None
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def cells(self) -> list[str]:
        rows = ("?" if self.rows is None else f"{self.rows:,}") if self.exists else "not created yet"
        pending = f"{self.uncommitted.rows:,} rows of {counted(self.uncommitted.batches, 'batch', 'batches')}"
        return [self.table, rows, pending, self.head_snapshot or "-", self.valid_through or "-"]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Where a pipeline stands. Times are ISO 8601 in UTC, ages in seconds by this host's clock.

    `publish_pending`: a publisher holds a transaction open, or died in one. The positions shown are then those of the
    last publish; the next run's fence, or the transaction's time-out, decides it. `misfits` are the fields that records
    among the dead letters do not fit. `left_out` are topics that `topics_regex` matches and that are not read, by name
    with why.
    """

    pipeline: str
    bootstrapped: bool
    lag: int
    topics: tuple[TopicStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    paused: Pause | None
    last_batch: LastBatch | None
    in_flight: tuple[InFlight, ...]
    tables: tuple[TableStatus, ...]
    control_topic: ControlTopicStatus | None
    publish_pending: bool
    findings: tuple[str, ...]
    blockers: tuple[Blocker, ...] = ()
    misfits: tuple[Misfits, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[Shown]:
        yield Line(f"pipeline {self.pipeline}{'' if self.bootstrapped else ', has not run yet'}: lag {self.lag:,}")
        last = (f"last batch {self.last_batch}",) if self.last_batch else ()
        yield from lines_before(self.paused, last, self.in_flight)
        for topic in self.topics:
            # Before the first run nothing says which records it will read.
            told = self.bootstrapped and topic.until_loss is not None
            left = f", {topic.until_loss:,} records until retention reaches unread ones" if told else ""
            partitions = counted(topic.partitions, "partition", "partitions")
            yield Line(f"topic {topic.topic}: {partitions}, lag {topic.lag:,}{left}")
        yield from lines_before(None, (), (), self.control_topic)
        columns = ["table", "rows", "not committed", "snapshot", "valid through"]
        yield Table("tables", columns, [table.cells for table in self.tables])
        for table in self.tables:
            if table.dropped:
                lacking = f"{table.table} has no column for {dropped_text(table.dropped)}"
                yield Line(f"{lacking} in the last batches", WARNING)
        yield from (Line(f"{topic}: {why}") for topic, why in self.left_out.items())
        yield from (Line(str(misfit), BAD) for misfit in self.misfits)
        yield from lines_behind(self.blockers, [*self.findings, *(t.finding for t in self.tables if t.finding)])


def status(session: Session) -> StatusReport:
    """Look at everything once. Raises Unreachable or ConfigError; findings are in the report, and among its blockers
    alone partitions that give no answer and tables that can't be loaded.

    The log comes before the tables, so that a table never seems to lack what was told of it.
    """
    ran = session.read_only()
    state, now_ms = session.log.state, time.time_ns() // 1_000_000
    silent = Silent()
    topics = describe_topics(session.admin, session.source_topics(), timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    wanted = [at for topic in topics.values() for at in topic.all_partitions]
    ids = {name: topic.topic_id for name, topic in topics.items()}

    positions, pending = _positions(session, wanted)

    def read() -> tuple[Positions, Finding | None]:
        found = session.group.positions(wanted)
        state = session.log.refresh_to_end()
        return found, checks.topic_recreated(ids, state) or checks.positions(found, ids, state)

    against_publish = unchanged(read) if ran and not pending else None
    starts = log_starts(session.admin, wanted, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    ends = end_offsets(session.admin, wanted, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
    partitions = tuple(partition_statuses(positions, starts, ends))
    dropped = dropped_lately(state)
    failed = dict[str, CalveError]()
    tables = tuple(
        replace(_table(session, name, now_ms, failed, ran=ran), dropped=dropped.get(name, {}))
        for name in table_names(session)
    )
    if len(failed) == len(tables):
        # Nothing that they say: the catalog itself, most likely.
        for error in failed.values():
            raise error
    findings = (session.other_binding() if ran else None, against_publish, checks.against_log(positions, starts, ends))
    control_topic = control_topic_of(session.log.topic, state, now_ms) if ran else None
    blockers = (
        *held_back(session, failed, {TopicPartition(p.topic, p.partition): p.lag for p in partitions if p.lag}),
        *silent_ones(silent, state.silent_ms),
        *open_transactions(session.admin, session.pipeline.kafka.properties, ends),
        *(each for each in behind(session) if each.where not in failed),
        *long_log(control_topic, str(session.pipeline.path)),
    )
    return StatusReport(
        pipeline=session.pipeline.name,
        bootstrapped=state.last_publish is not None,
        lag=sum(p.lag for p in partitions),
        topics=tuple(topic_statuses(partitions)),
        partitions=partitions,
        paused=pause_of(state),
        last_batch=last_batch(state),
        in_flight=tuple(in_flight(state, now_ms)),
        tables=tables,
        control_topic=control_topic,
        publish_pending=pending,
        findings=tuple(str(f.error(str(session.pipeline.path))) for f in findings if f is not None),
        blockers=blockers,
        misfits=misfits(session, datetime.fromtimestamp(now_ms / 1000, UTC)) if ran else (),
        left_out=session.left_out(),
    )


def behind(session: Session) -> Iterator[Blocker]:
    """The tables that the last coordinator could not commit to, and that still lack something."""
    state = session.log.state
    for table, why in state.reasons.items():
        if (since_ms := state.behind_since_ms(table)) is not None:
            yield Blocker(table, why, f"calve commit {session.pipeline.path} tries it again and says more", since_ms)


def _positions(session: Session, wanted: list[TopicPartition]) -> tuple[Positions, bool]:
    """The group's positions; those of the last publish and True while a transaction is pending on the group's."""
    try:
        return session.group.positions(wanted, timeout_s=_PENDING_S), False
    except Unreachable:
        published = session.log.state.positions()
        if published is None:
            raise
        return {at: Position(offset, "") for at, offset in published.items() if at in set(wanted)}, True


def last_batch(state: CommitState) -> LastBatch | None:
    """None before the first batch, and where only a checkpoint tells of it."""
    event = state.complete.event if state.complete else None
    if event is None or event.kind == "bootstrap":
        return None
    counted = {name: event.totals.get(name, 0) for name in _LAST_BATCH_COUNTS}
    return LastBatch(
        event.batch_id, iso(event.written_at_ms), **counted, written_by=WrittenBy.from_map(event.written_by)
    )


def dropped_lately(state: CommitState) -> dict[str, dict[str, int]]:
    """What the last batches have left out since no column takes it, by table and field."""
    return sum_dropped(batch.dropped for batch in [*state.batches.values()][-LAST_BATCHES:])


def uncommitted(pending: list[Logged[DataWritten]], now_ms: int) -> Uncommitted:
    events = [logged.event for logged in pending]
    oldest = min((event.written_at_ms for event in events), default=None)
    return Uncommitted(
        batches=len({event.batch_id for event in events}),
        rows=sum(event.rows for event in events),
        oldest_age_s=age_s(oldest, now_ms) if oldest is not None else None,
    )


def table_status(table: LoadedTable, state: CommitState, now_ms: int, finding: str | None = None) -> TableStatus:
    """What a loaded table says, and what the log holds for it."""
    totals = table.totals
    through_ms = totals.valid_through_ms
    return TableStatus(
        table=table.name,
        exists=True,
        rows=totals.rows,
        files=totals.files,
        bytes=totals.size,
        snapshots=totals.versions,
        head_snapshot=totals.head,
        stored_offset=table.stored_offset,
        valid_through=iso(through_ms) if through_ms else None,
        behind_s=age_s(through_ms, now_ms) if through_ms else None,
        uncommitted=uncommitted(state.pending(table.name, table.uuid, table.stored_offset), now_ms),
        finding=finding,
    )


def _table(session: Session, name: str, now_ms: int, failed: dict[str, CalveError], *, ran: bool) -> TableStatus:
    """What a table says; `failed` takes why no batch can be written for it."""
    try:
        looked = session.look(name, compare=ran)
    except CalveError as error:
        failed[name] = error
        return TableStatus(name, exists=True, rows=None)
    finding = str(looked.finding) if looked.finding else None
    if looked.table is None:
        return TableStatus(name, exists=False, finding=finding)
    settings = next((table for table in session.pipeline.tables if table.name == name), None)
    if settings is not None and finding is None:
        try:
            check_writable(looked.table, settings)
        except CalveError as error:
            failed[name] = error
    return table_status(looked.table, session.log.state, now_ms, finding)

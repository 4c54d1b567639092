"""`CommitState`: what a sink's control log says. Pure: no clock, no Kafka, no table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from calve.sink_core.control.events import ByPartition, Logged, PipelineBound
from calve.sink_core.control.logged_events import LoggedEvents
from calve.sink_core.control.state import LogState
from calve.sink_core.counts import Dropped
from calve.sink_core.offsets import NOWHERE, Offsets, TopicPartition, dense_to_offsets
from calve.sink_core.packed_values import PackedDict
from calve.sink_core.tables.log import parts
from calve.sink_core.tables.log.events import (
    CheckpointPart,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    TableCheckpoint,
)
from calve.sink_core.tables.log.range_parts import RangeJob

UNREAD = 0
"""The `through_ms` of a partition with records waiting of which none has been read: no timestamp can be promised."""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """What stays known of every published batch."""

    offset: int
    predecessor: str
    kind: str
    tables: tuple[str, ...]
    totals: Mapping[str, int]
    dropped: Dropped


@dataclass(slots=True)
class CommitState(LogState[DataComplete, TableCheckpoint]):
    """The fold of a sink's control log: what every kind's says, and what tables have and lack.

    `reported` holds per table and UUID the highest stored control offset (exclusive) anybody reported. `written` holds
    every `DATA_WRITTEN` still in the log, in log order; which of them are new for a table is decided against that
    table's own stored offset (`pending`). `through_ms` says up to which timestamp each partition has been read;
    `begins` are the start positions. `published` counts batches, the bootstrap and range jobs left out. `fed` counts by
    table the batches that named it, rows or not; `range_jobs` are all that were published, by id and table, oldest
    first.

    `reasons` say by table why it could not be committed to, by the last that went through all tables, `held` why
    batches go without it, by the last run.

    `silent_ms` says of topics and partitions, by name, since which batch they gave no answer, by what is in the log.

    `instant_ms` is the last instant of a batch or a range job that was published.

    Of a trimmed log `batches` and `written` hold what is still in it, all else is as if nothing had been deleted.
    `last_events` are, by table, ids of `DATA_WRITTEN`s that may be the last a table has and that the log lacks.
    """

    batches: PackedDict[BatchSeen] = field(default_factory=PackedDict[BatchSeen])
    written: dict[str, LoggedEvents[DataWritten]] = field(default_factory=dict[str, LoggedEvents[DataWritten]])
    reported: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    committed_through: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    held: Mapping[str, str] = field(default_factory=dict[str, str])
    silent_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    published: int = 0
    begins: Offsets = field(default_factory=dict[TopicPartition, int])
    through_ms: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    last_events: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    fed: dict[str, int] = field(default_factory=dict[str, int])
    range_jobs: dict[tuple[str, str], RangeJob] = field(default_factory=dict[tuple[str, str], RangeJob])
    instant_ms: int = 0
    _incomplete: dict[str, int] = field(default_factory=dict[str, int])
    _reports: list[CommitToTable] = field(default_factory=list[CommitToTable])
    _parts: dict[str, list[CheckpointPart]] = field(default_factory=dict[str, list[CheckpointPart]])
    _through: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def bind_to(self, bound: PipelineBound) -> None:
        self.bound = bound
        waiting, self._reports = self._reports, []
        for report in waiting:
            self.take_report(0, report)

    def take_files(self, offset: int, event: DataWritten) -> None:
        self.written.setdefault(event.table, LoggedEvents[DataWritten]()).append(Logged(offset, event))
        self._incomplete.setdefault(event.batch_id, offset)

    def complete_batch(self, offset: int, event: DataComplete) -> None:
        self.publish(offset, event)
        self._incomplete.pop(event.batch_id, None)
        self.instant_ms = max(self.instant_ms, event.instant_ms)
        self.batches[event.batch_id] = BatchSeen(
            offset, event.predecessor, event.kind, event.tables, event.totals, event.dropped
        )
        if event.kind == "batch":
            self.published += 1
            self.fed.update({table: self.fed.get(table, 0) + 1 for table in event.tables})
        if not event.moves_positions:
            self.range_jobs |= {(job.batch_id, job.table): job for job in _jobs_of(event, self.written)}
            return
        if event.kind == "bootstrap":
            self.begins = dense_to_offsets(event.positions)
        self.silent_ms = {name: self.silent_ms.get(name, event.written_at_ms) for name in event.silent}
        self._read_through(event.through_ms)
        promised = self._through[-1][1] if self._through else UNREAD
        self._through.append((offset, max(promised, self._lowest_through())))

    def take_report(self, _offset: int, event: CommitToTable) -> None:
        """Of a trimmed log's first reports only its checkpoint tells whether they are of this control topic."""
        if event.control_topic_id and self.bound is None:
            self._reports.append(event)
        elif self.bound is None or event.control_topic_id in ("", self.bound.control_topic_id):
            self._report(event.table, event.table_uuid, event.stored_offset)

    def complete_round(self, _offset: int, event: CommitComplete) -> None:
        """For people; nothing that is committed rests on it."""
        self.committed_through = max(self.committed_through, event.through_offset)
        self.reasons, self.held = event.reasons, event.held

    def take_part(self, _offset: int, event: CheckpointPart) -> None:
        self._parts.setdefault(event.checkpoint_id, []).append(event)

    def take_checkpoint(self, offset: int, event: TableCheckpoint) -> None:
        """Fold what tables had, and in a trimmed log what the events below it said: where a part of it is missing,
        which a later trim may have taken, it stands for nothing.
        """
        for table, by_uuid in event.reported.items():
            for table_uuid, stored in by_uuid.items():
                self._report(table, table_uuid, stored)
        for table, ids in event.last_events.items():
            self.last_events.setdefault(table, set()).update(ids)
        self.instant_ms = max(self.instant_ms, event.instant_ms)
        own = self._parts.pop(event.event_id, [])
        if own:
            event = replace(event, range_jobs=parts.joined(own))
        if self.restore(offset, event, whole=len(own) >= event.parts):
            self._stand_in(event)

    @property
    def limit(self) -> int:
        """Up to which offset (exclusive) a table may take events in.

        The end of what was read, but never past a `DATA_WRITTEN` whose `DATA_COMPLETE` was not visible.
        """
        return min([self.next_offset, *self._incomplete.values()])

    def pending(self, table: str, table_uuid: str, stored_offset: int) -> list[Logged[DataWritten]]:
        """The events that a table which has everything below `stored_offset` still lacks."""
        return [
            logged
            for logged in self._written_since(table, stored_offset)
            if logged.offset < self.limit
            and (logged.event.table_uuid == table_uuid or not self.rules.recreated_table_is_a_finding)
            and logged.event.batch_id in self.batches
            and (logged.event.resolves is None or not self.rules.resolving_job_is_for_its_finding)
        ]

    def for_other_uuid(self, table: str, table_uuid: str, from_offset: int) -> Logged[DataWritten] | None:
        """The first event at or after `from_offset` that was written for another incarnation of the table."""
        others = (each for each in self._written_since(table, from_offset) if each.event.table_uuid != table_uuid)
        return next(others, None)

    def reported_offset(self, table: str, table_uuid: str) -> int:
        """Highest stored control offset reported for this incarnation of a table; 0 if none was."""
        return self.reported.get(table, {}).get(table_uuid, 0)

    def tables_with_news(self) -> list[str]:
        """Tables that lack something by what the log says; the table itself has the last word."""
        return [
            table
            for table, written in self.written.items()
            if written and written[-1].offset >= self._reported_through(table)
        ]

    def behind_since_ms(self, table: str) -> int | None:
        """When the first was published that a table lacks by what the log says; None if it lacks nothing."""
        first = self._first_lacking(table)
        return first.event.written_at_ms if first else None

    def lacks_from(self, table: str) -> int | None:
        """The offset of the first event that a table lacks by what the log says; None if it lacks nothing."""
        first = self._first_lacking(table)
        return first.offset if first else None

    @property
    def continued(self) -> tuple[str, ...]:
        """Range jobs continue the one before, and batches too. That a publish follows does not end a range job: it
        counts as outstanding as long as no trim has taken its `START_COMMIT`.
        """
        return (self.last_batch_id, self.last_range_job_id) if self.last_batch_id else ()

    @property
    def last_range_job_id(self) -> str:
        """The range job published last, which moved the token; empty if there was none."""
        return next(reversed(self.range_jobs), ("", ""))[0]

    def unfed_batches(self, table: str, up_to: int | None = None) -> int:
        """How many batches were published that neither named the table nor were read again for it since, by range jobs
        below the control offset `up_to` if it is given.
        """
        jobs = (job for job in self.range_jobs_of(table) if not job.conditional)
        if up_to is not None:
            # Every table has what a trim took out of the log.
            jobs = (j for j in jobs if j.batch_id not in self.batches or self.batches[j.batch_id].offset < up_to)
        return self.published - self.fed.get(table, 0) - sum(job.batches for job in jobs)

    def range_jobs_of(self, table: str) -> list[RangeJob]:
        """Those that were published for a table, oldest first."""
        return [job for job in self.range_jobs.values() if job.table == table]

    @property
    def tables(self) -> list[str]:
        """Every table the log speaks of."""
        return sorted(self.written.keys() | self.reported.keys())

    def valid_through_ms(self, up_to: int) -> int | None:
        """VTTS of a table that has every event below `up_to`; None before anything is known."""
        known = [through for offset, through in self._through if offset < up_to]
        return (known[-1] or None) if known else None

    def _reported_through(self, table: str) -> int:
        """Highest stored control offset reported for any incarnation of a table; 0 if none was."""
        return max(self.reported.get(table, {"": 0}).values())

    def _first_lacking(self, table: str) -> Logged[DataWritten] | None:
        return next(self._written_since(table, self._reported_through(table)), None)

    def _written_since(self, table: str, offset: int) -> Iterator[Logged[DataWritten]]:
        return self.written[table].since(offset) if table in self.written else iter(())

    def _report(self, table: str, table_uuid: str, stored_offset: int) -> None:
        by_uuid = self.reported.setdefault(table, {})
        by_uuid[table_uuid] = max(stored_offset, by_uuid.get(table_uuid, 0))

    def _read_through(self, through_ms: ByPartition) -> None:
        for at, through in dense_to_offsets(through_ms).items():
            self.through_ms[at] = max(through, self.through_ms.get(at, NOWHERE))

    def _lowest_through(self) -> int:
        """VTTS is the lowest of the partitions still read (a topic taken out holds nothing back), and never goes back:
        under LogAppendTime a new partition's records are later than what was promised without it.
        """
        return min((self.through_ms[at] for at in self.positions() or () if at in self.through_ms), default=UNREAD)

    def _stand_in(self, event: TableCheckpoint) -> None:
        """Merge what a trimmed log's events said so far, which was only a part, with the checkpoint that has it all."""
        self.published = event.batches
        self.fed = dict(event.fed)
        known = {(job.batch_id, job.table): job for job in event.range_jobs}
        self.range_jobs = known | {key: job for key, job in self.range_jobs.items() if key not in known}
        self.begins = dense_to_offsets(event.begins)
        self._read_through(event.through_ms)
        self._through = [(event.up_to_offset - 1, max(event.valid_through_ms, self._lowest_through()))]


def _jobs_of(event: DataComplete, written: Mapping[str, Sequence[Logged[DataWritten]]]) -> Iterator[RangeJob]:
    """The range job that `event` completes, once for each of its tables. `written` holds its `DATA_WRITTEN`s last."""
    own = {table: _own(event, written.get(table, ())) for table in event.tables}
    letters = any(each is not None and each.removes for each in own.values())
    for table, each in own.items():
        moved = letters and not (each is not None and each.removes)
        yield RangeJob(
            batch_id=event.batch_id,
            table=table,
            resolves=each is not None and each.resolves is not None,
            batches=event.totals.get("batches", 0),
            ranges=tuple(part for part in event.ranges if part.rows) if moved else event.ranges,
            replaces=each is not None and each.replaces is not None,
            letters=letters,
            topic_ids=event.topic_ids if letters else {},
        )


def _own(event: DataComplete, written: Sequence[Logged[DataWritten]]) -> DataWritten | None:
    last = written[-1].event if written else None
    return last if last is not None and last.batch_id == event.batch_id else None

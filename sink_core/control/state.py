"""`CommitState`: what the control log says, folded event by event. Pure: no clock, no Kafka, no table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from calve.sink_core.control import restored
from calve.sink_core.control.events import (
    BatchAbandoned,
    ByPartition,
    Checkpoint,
    CheckpointPart,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    Paused,
    PipelineBound,
    Resolved,
    Resumed,
    StartCommit,
)
from calve.sink_core.control.logged import Logged, jobs_of
from calve.sink_core.control.range_parts import RangeJob
from calve.sink_core.counts import Dropped
from calve.sink_core.errors import ProtocolError
from calve.sink_core.offsets import NOWHERE, Offsets, TopicPartition, batch_id_of, dense_to_offsets
from calve.sink_core.rules import ALL, Rules

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
class CommitState:
    """The fold of the control log up to `next_offset` (exclusive).

    `told` holds per table and UUID the highest stored control offset (exclusive) anybody reported. `complete` is the
    last `DATA_COMPLETE` that moved positions. `written` holds every `DATA_WRITTEN` still in the log, in log order;
    which of them are new for a table is decided against that table's own stored offset (`pending`). `partitions` are
    all that ever had a position, with the last one, and `topic_ids` the UUIDs that their topics had then; `through_ms`
    says up to which timestamp each has been read; `begins` are the start positions. `published` counts batches, the
    bootstrap and range jobs left out. `resumed` is the last `RESUMED`, whatever followed it. `fed` counts by table the
    batches that named it, rows or not; `range_jobs` are all that were published, by id and table, oldest first.

    A log that begins above 0 was trimmed. Its first checkpoint that reaches down to `log_start` then stands for what is
    missing, although it comes after events that were left: `batches`, `started`, `abandoned` and `written` hold what
    is still in the log, all else is as if nothing had been deleted. `last_events` are, by table, ids of
    `DATA_WRITTEN`s that may be the last a table took in and that the log lacks. Whoever wrote a checkpoint went on to
    delete below `deletable` at most. `oldest_ms` is the first event's time.
    """

    log_start: int = 0
    next_offset: int = 0
    rules: Rules = ALL
    bound: PipelineBound | None = None
    paused: Paused | None = None
    resumed: Resumed | None = None
    checkpoint: Logged[Checkpoint] | None = None
    complete: Logged[DataComplete] | None = None
    batches: dict[str, BatchSeen] = field(default_factory=dict[str, BatchSeen])
    started: dict[str, Logged[StartCommit]] = field(default_factory=dict[str, Logged[StartCommit]])
    written: dict[str, list[Logged[DataWritten]]] = field(default_factory=dict[str, list[Logged[DataWritten]]])
    told: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    abandoned: set[str] = field(default_factory=set[str])
    committed_through: int = 0
    published: int = 0
    partitions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    topic_ids: dict[str, str] = field(default_factory=dict[str, str])
    begins: Offsets = field(default_factory=dict[TopicPartition, int])
    through_ms: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    last_events: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    fed: dict[str, int] = field(default_factory=dict[str, int])
    range_jobs: dict[tuple[str, str], RangeJob] = field(default_factory=dict[tuple[str, str], RangeJob])
    deletable: int = 0
    oldest_ms: int | None = None
    resolved_ms: int = 0
    _incomplete: dict[str, int] = field(default_factory=dict[str, int])
    _reports: list[CommitToTable] = field(default_factory=list[CommitToTable])
    _first_of: dict[str, Logged[Event]] = field(default_factory=dict[str, Logged[Event]])
    _parts: dict[str, list[CheckpointPart]] = field(default_factory=dict[str, list[CheckpointPart]])
    _through: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _pause_seen: bool = False

    def apply(self, offset: int, event: Event) -> None:
        """Take in the event at `offset`.

        Raises ProtocolError if it was taken in before: files named twice would be committed twice.
        """
        if offset < self.next_offset:
            raise ProtocolError(
                f"{event.event_type} at control offset {offset} came after the log was read up to {self.next_offset}",
                hint="run again; if it stays, report it: nothing was committed",
            )
        self.next_offset = offset + 1
        if self.oldest_ms is None:
            self.oldest_ms = event.written_at_ms
        self._first_of.setdefault(event.pipeline_id, Logged(offset, event))
        match event:
            case PipelineBound():
                # The first one counts, and the same pipeline bound anew by the answer to a finding.
                if self.bound is None or self.bound.pipeline_id == event.pipeline_id:
                    self._bind(event)
            case DataWritten():
                self.written.setdefault(event.table, []).append(Logged(offset, event))
                self._incomplete.setdefault(event.batch_id, offset)
            case DataComplete():
                self._complete_batch(offset, event)
            case CommitToTable():
                self._report(event)
            case CheckpointPart():
                self._parts.setdefault(event.checkpoint_id, []).append(event)
            case Checkpoint():
                self._restore(offset, event)
            case Paused():
                self.paused, self._pause_seen = event, True
            case Resumed():
                self.paused, self.resumed, self._pause_seen = None, event, True
            case _:
                self._note(offset, event)

    def _note(self, offset: int, event: Event) -> None:
        """What is for people; nothing that is published or committed rests on it."""
        match event:
            case StartCommit():
                self.started[event.batch_id] = Logged(offset, event)
            case BatchAbandoned():
                self.abandoned.add(event.batch_id)
            case CommitComplete():
                self.committed_through = max(self.committed_through, event.through_offset)
            case Resolved():
                self.resolved_ms = max(self.resolved_ms, event.written_at_ms)
            case _:
                pass

    def apply_all(self, events: Iterable[tuple[int, Event]]) -> CommitState:
        for offset, event in events:
            self.apply(offset, event)
        return self

    def reached(self, end: int) -> None:
        """The log has been read up to `end`, which may lie behind trailing control records."""
        self.next_offset = max(self.next_offset, end)

    def restart(self, log_start: int) -> None:
        """Forget everything: the log is read again, from `log_start`. In place, as others hold on to the state."""
        fresh = CommitState(log_start=log_start, next_offset=log_start, rules=self.rules)
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))

    @property
    def foreign(self) -> Logged[Event] | None:
        """The first event of another pipeline. None as long as nothing says which pipeline the log is of.

        The loser of two first runs has written nothing but its binding, which is for the same pipeline.
        """
        if self.bound is None or (self.log_start > 0 and self.checkpoint is None):
            return None
        others = (logged for pipeline_id, logged in self._first_of.items() if pipeline_id != self.bound.pipeline_id)
        return min((o for o in others if not self._is_second_binding(o.event)), key=lambda o: o.offset, default=None)

    def _is_second_binding(self, event: Event) -> bool:
        return (
            isinstance(event, PipelineBound)
            and self.bound is not None
            and (event.pipeline, event.deployment) == (self.bound.pipeline, self.bound.deployment)
        )

    @property
    def limit(self) -> int:
        """Up to which offset (exclusive) a table may take events in.

        The end of what was read, but never past a `DATA_WRITTEN` whose `DATA_COMPLETE` was not visible.
        """
        return min([self.next_offset, *self._incomplete.values()])

    def pending(self, table: str, table_uuid: str, stored_offset: int) -> list[Logged[DataWritten]]:
        """The events that a table which has taken in everything below `stored_offset` still lacks."""
        return [
            logged
            for logged in self.written.get(table, [])
            if stored_offset <= logged.offset < self.limit
            and (logged.event.table_uuid == table_uuid or not self.rules.recreated_table_is_a_finding)
            and logged.event.batch_id in self.batches
            and (logged.event.resolves is None or not self.rules.resolving_job_is_for_its_finding)
        ]

    def for_other_uuid(self, table: str, table_uuid: str, from_offset: int) -> Logged[DataWritten] | None:
        """The first event at or after `from_offset` that was written for another incarnation of the table."""
        others = (
            logged
            for logged in self.written.get(table, [])
            if logged.offset >= from_offset and logged.event.table_uuid != table_uuid
        )
        return next(others, None)

    def told_offset(self, table: str, table_uuid: str) -> int:
        """Highest stored control offset reported for this incarnation of a table; 0 if none was."""
        return self.told.get(table, {}).get(table_uuid, 0)

    def tables_with_news(self) -> list[str]:
        """Tables that lack something by what the log says; the table itself has the last word."""
        return [
            table
            for table, written in self.written.items()
            if written and written[-1].offset >= max(self.told.get(table, {"": 0}).values())
        ]

    def outstanding(self) -> list[Logged[StartCommit]]:
        """Batches planned on what is published now that are neither published nor given up.

        Running, or dead without a word. Any other could only become stale. Range jobs too, as long as no trim has taken
        their `START_COMMIT`: that a later publish follows it does not end them.
        """
        continued = (self.last_batch_id, self.last_range_job_id) if self.last_batch_id else ()
        return [
            logged
            for batch_id, logged in self.started.items()
            if batch_id not in self.batches
            and batch_id not in self.abandoned
            and batch_id_of(logged.event.predecessor) in continued
        ]

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
        return sorted(self.written.keys() | self.told.keys())

    def valid_through_ms(self, up_to: int) -> int | None:
        """VTTS of a table that has taken in every event below `up_to`; None before anything is known."""
        known = [through for offset, through in self._through if offset < up_to]
        return (known[-1] or None) if known else None

    @property
    def last_publish(self) -> DataComplete | Checkpoint | None:
        """What last spoke of positions; None before bootstrap."""
        if self.complete:
            return self.complete.event
        return self.checkpoint.event if self.checkpoint else None

    @property
    def last_batch_id(self) -> str | None:
        """The batch published last; None before bootstrap."""
        if self.complete:
            return self.complete.event.batch_id
        return self.checkpoint.event.last_complete_batch_id if self.checkpoint else None

    @property
    def answered_ms(self) -> int:
        """When somebody last wrote RESUMED or RESOLVED, 0 if never."""
        return max(self.resolved_ms, self.resumed.written_at_ms if self.resumed else 0)

    def positions(self) -> Offsets | None:
        """The positions after the last publish, or None before bootstrap."""
        return dense_to_offsets(self.last_publish.positions) if self.last_publish else None

    def kept(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The last position of every partition that ever had one, of topics that still are those of `topic_ids`."""
        same = {topic for topic, found in topic_ids.items() if self.topic_ids.get(topic, found) == found}
        return {at: offset for at, offset in self.partitions.items() if at.topic in same}

    def _complete_batch(self, offset: int, event: DataComplete) -> None:
        self._incomplete.pop(event.batch_id, None)
        self.batches[event.batch_id] = BatchSeen(
            offset, event.predecessor, event.kind, event.tables, event.totals, event.dropped
        )
        if event.kind == "batch":
            self.published += 1
            self.fed.update({table: self.fed.get(table, 0) + 1 for table in event.tables})
        if not event.moves_positions:
            self.range_jobs |= {(job.batch_id, job.table): job for job in jobs_of(event, self.written)}
            return
        self.complete = Logged(offset, event)
        if event.kind == "bootstrap":
            self.begins = dense_to_offsets(event.positions)
        self.partitions.update(dense_to_offsets(event.positions))
        self.topic_ids.update(event.topic_ids)
        self._read_through(event.through_ms)
        promised = self._through[-1][1] if self._through else UNREAD
        self._through.append((offset, max(promised, self._lowest_through())))

    def _read_through(self, through_ms: ByPartition) -> None:
        for at, through in dense_to_offsets(through_ms).items():
            self.through_ms[at] = max(through, self.through_ms.get(at, NOWHERE))

    def _lowest_through(self) -> int:
        """VTTS is the lowest of the partitions still read (a topic taken out holds nothing back), and never goes back:
        under LogAppendTime a new partition's records are later than what was promised without it.
        """
        return min((self.through_ms[at] for at in self.positions() or () if at in self.through_ms), default=UNREAD)

    def _bind(self, bound: PipelineBound) -> None:
        self.bound = bound
        waiting, self._reports = self._reports, []
        for report in waiting:
            self._report(report)

    def _report(self, event: CommitToTable) -> None:
        """Of a trimmed log's first reports only its checkpoint tells whether they are of this control topic."""
        if event.control_topic_id and self.bound is None:
            self._reports.append(event)
        elif self.bound is None or event.control_topic_id in ("", self.bound.control_topic_id):
            self._tell(event.table, event.table_uuid, event.stored_offset)

    def _tell(self, table: str, table_uuid: str, stored_offset: int) -> None:
        by_uuid = self.told.setdefault(table, {})
        by_uuid[table_uuid] = max(stored_offset, by_uuid.get(table_uuid, 0))

    def _restore(self, offset: int, event: Checkpoint) -> None:
        """Take in a checkpoint: what tables had, and in a trimmed log what the events below it said.

        It stands for nothing without its parts, which a later trim may have taken, or if a batch was published between
        `up_to_offset` and the checkpoint itself: how that batch follows the earlier ones can't be told from what is
        left. Whoever trims looks for that before deleting.
        """
        for table, by_uuid in event.told.items():
            for table_uuid, stored in by_uuid.items():
                self._tell(table, table_uuid, stored)
        for table, ids in event.last_events.items():
            self.last_events.setdefault(table, set()).update(ids)
        # One without the field was written by an earlier version.
        deleted = event.delete_below if event.delete_below >= 0 else event.up_to_offset
        self.deletable = max(self.deletable, deleted)
        parts = self._parts.pop(event.event_id, ())
        if len(parts) < event.parts:
            return
        if parts:
            event = replace(event, range_jobs=restored.range_jobs(parts))
        published_since = self.complete is not None and self.complete.offset >= event.up_to_offset
        reached = self.checkpoint.event.up_to_offset if self.checkpoint else self.log_start - 1
        if published_since or event.up_to_offset <= reached:
            return
        first, self.checkpoint = self.checkpoint is None, Logged(offset, event)
        if first and self.log_start > 0:
            self._stand_in(event)

    def _stand_in(self, event: Checkpoint) -> None:
        """Merge what a trimmed log's events said so far, which was only a part, with the checkpoint that has it all.

        Where the log has a pause, a resume or a publish, it is later than any the checkpoint knows.
        """
        if self.bound is None or self.bound.pipeline_id != event.pipeline_id:
            # One that is still in the log may be the second of two first runs.
            self._bind(restored.bound(event))
        if not self._pause_seen:
            self.paused = restored.paused(event)
        self.resumed = self.resumed or restored.resumed(event)
        self.resolved_ms = max(self.resolved_ms, event.resolved_at_ms)
        self.published = event.batches
        self.fed = dict(event.fed)
        known = {(job.batch_id, job.table): job for job in event.range_jobs}
        self.range_jobs = known | {key: job for key, job in self.range_jobs.items() if key not in known}
        self.begins = dense_to_offsets(event.begins)
        self.partitions |= dense_to_offsets(event.former_positions) | dense_to_offsets(event.positions)
        self.topic_ids |= {**event.former_topic_ids, **event.topic_ids}
        self._read_through(event.through_ms)
        self._through = [(event.up_to_offset - 1, max(event.valid_through_ms, self._lowest_through()))]

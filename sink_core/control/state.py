"""`CommitState`: what the control log says, folded event by event. Pure: no clock, no Kafka, no table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from sink_core.control.events import (
    ByPartition,
    Checkpoint,
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
from sink_core.errors import ProtocolError
from sink_core.offsets import Offsets, TopicPartition

NOWHERE = -1
"""Stands in `ByPartition` arrays for a partition that has no value."""

UNREAD = 0
"""The `through_ms` of a partition with records waiting of which none has been read: no timestamp can be promised."""


E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Logged(Generic[E]):
    """An event and its offset in the control topic."""

    offset: int
    event: E


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """What stays known of every published batch."""

    offset: int
    predecessor: str
    kind: str
    tables: tuple[str, ...]
    totals: Mapping[str, int]


@dataclass(slots=True)
class CommitState:
    """The fold of the control log up to `next_offset` (exclusive).

    `told` holds per table and UUID the highest stored control offset (exclusive) anybody reported. `complete` is the
    last `DATA_COMPLETE` that moved positions. `written` holds every `DATA_WRITTEN` still in the log, in log order;
    which of them are new for a table is decided against that table's own stored offset (`pending`). `partitions` are
    all that ever had a position. `resumed` is the last `RESUMED` still in the log, whatever followed it.
    """

    log_start: int = 0
    next_offset: int = 0
    bound: PipelineBound | None = None
    paused: Paused | None = None
    resumed: Resumed | None = None
    checkpoint: Logged[Checkpoint] | None = None
    complete: Logged[DataComplete] | None = None
    batches: dict[str, BatchSeen] = field(default_factory=dict[str, BatchSeen])
    started: dict[str, Logged[StartCommit]] = field(default_factory=dict[str, Logged[StartCommit]])
    written: dict[str, list[Logged[DataWritten]]] = field(default_factory=dict[str, list[Logged[DataWritten]]])
    told: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    resolved: list[Logged[Resolved]] = field(default_factory=list[Logged[Resolved]])
    committed_through: int = 0
    partitions: set[TopicPartition] = field(default_factory=set[TopicPartition])
    _incomplete: dict[str, int] = field(default_factory=dict[str, int])
    _through_ms: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
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
        match event:
            case PipelineBound():
                self.bound = self.bound or event
            case StartCommit():
                self.started[event.batch_id] = Logged(offset, event)
            case DataWritten():
                self.written.setdefault(event.table, []).append(Logged(offset, event))
                self._incomplete.setdefault(event.batch_id, offset)
            case DataComplete():
                self._complete_batch(offset, event)
            case CommitToTable():
                self._tell(event.table, event.table_uuid, event.stored_offset)
            case CommitComplete():
                self.committed_through = max(self.committed_through, event.through_offset)
            case Checkpoint():
                self._restore(offset, event)
            case Paused():
                self.paused, self._pause_seen = event, True
            case Resumed():
                self.paused, self.resumed, self._pause_seen = None, event, True
            case Resolved():
                self.resolved.append(Logged(offset, event))
            case _:
                pass  # BATCH_ABANDONED is for people

    def apply_all(self, events: Iterable[tuple[int, Event]]) -> CommitState:
        for offset, event in events:
            self.apply(offset, event)
        return self

    def reached(self, end: int) -> None:
        """The log has been read up to `end`, which may lie behind trailing control records."""
        self.next_offset = max(self.next_offset, end)

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
            and logged.event.table_uuid == table_uuid
            and logged.event.batch_id in self.batches
            and logged.event.resolves is None
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

    def positions(self) -> Offsets | None:
        """The positions after the last publish, or None before bootstrap."""
        return dense_to_offsets(self.last_publish.positions) if self.last_publish else None

    def _complete_batch(self, offset: int, event: DataComplete) -> None:
        self._incomplete.pop(event.batch_id, None)
        self.batches[event.batch_id] = BatchSeen(offset, event.predecessor, event.kind, event.tables, event.totals)
        if not event.moves_positions:
            return
        self.complete = Logged(offset, event)
        self._read_through(offset, event)

    def _read_through(self, offset: int, event: DataComplete | Checkpoint) -> None:
        """VTTS is the lowest of the partitions still read (a topic taken out holds nothing back), and never goes back:
        under LogAppendTime a new partition's records are later than what was promised without it.
        """
        self.partitions.update(dense_to_offsets(event.positions))
        for at, through in dense_to_offsets(event.through_ms).items():
            self._through_ms[at] = max(through, self._through_ms.get(at, NOWHERE))
        lowest = min((self._through_ms[at] for at in self.positions() or () if at in self._through_ms), default=UNREAD)
        promised = self._through[-1][1] if self._through else UNREAD
        self._through.append((offset, max(promised, lowest)))

    def _tell(self, table: str, table_uuid: str, stored_offset: int) -> None:
        by_uuid = self.told.setdefault(table, {})
        by_uuid[table_uuid] = max(stored_offset, by_uuid.get(table_uuid, 0))

    def _restore(self, offset: int, event: Checkpoint) -> None:
        """A checkpoint says what was below it; where the events themselves are still there, it says nothing new."""
        if self.checkpoint and self.checkpoint.event.up_to_offset >= event.up_to_offset:
            return
        self.checkpoint = Logged(offset, event)
        for table, by_uuid in event.told.items():
            for table_uuid, stored in by_uuid.items():
                self._tell(table, table_uuid, stored)
        self._read_through(offset, event)
        if not self._pause_seen:
            self.paused = _paused_at(event)
        if self.bound is None or self.bound.pipeline_id != event.pipeline_id:
            self.bound = _bound_at(event)


def _paused_at(event: Checkpoint) -> Paused | None:
    if event.paused_by is None:
        return None
    return Paused(
        pipeline_id=event.pipeline_id,
        event_id=event.event_id,
        written_at_ms=event.written_at_ms,
        calve_version=event.calve_version,
        by=event.paused_by,
        reason="paused before the last checkpoint",
    )


def _bound_at(event: Checkpoint) -> PipelineBound:
    """The first binding of all. One that is still in the log may be the second of two first runs."""
    return PipelineBound(
        pipeline_id=event.pipeline_id,
        event_id=event.event_id,
        written_at_ms=event.written_at_ms,
        calve_version=event.calve_version,
        pipeline=event.pipeline,
        deployment=event.deployment,
        catalog_fingerprint=event.catalog_fingerprint,
        cluster_id=event.cluster_id,
        control_topic_id=event.control_topic_id,
    )


def dense_to_offsets(dense: ByPartition) -> dict[TopicPartition, int]:
    """`{topic: (value of partition 0, …)}` → one entry per partition that has a value."""
    return {
        TopicPartition(topic, partition): value
        for topic, values in dense.items()
        for partition, value in enumerate(values)
        if value != NOWHERE
    }


def offsets_to_dense(values: Offsets) -> dict[str, tuple[int, ...]]:
    """The reverse of `dense_to_offsets`."""
    highest: dict[str, int] = {}
    for at in values:
        highest[at.topic] = max(at.partition, highest.get(at.topic, 0))
    return {
        topic: tuple(values.get(TopicPartition(topic, p), NOWHERE) for p in range(last + 1))
        for topic, last in sorted(highest.items())
    }


def without_arrays(event: DataComplete) -> DataComplete:
    """The event as shown to people: without the per-partition arrays."""
    return replace(event, positions={}, through_ms={})

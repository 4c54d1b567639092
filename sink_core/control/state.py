"""`LogState`: what the control log of any kind of pipeline says, folded event by event.

Pure: no clock, no Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from sys import intern
from typing import Any, Generic, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.control.events import (
    BatchAbandoned,
    BatchPublished,
    BatchStarted,
    Checkpoint,
    Event,
    Logged,
    Paused,
    PipelineBound,
    Resolved,
    Resumed,
)
from calve.sink_core.errors import ProtocolError
from calve.sink_core.offsets import Offsets, TopicPartition, batch_id_of, dense_to_offsets
from calve.sink_core.packed_values import PackedDict
from calve.sink_core.rules import ALL, Rules

P = TypeVar("P", bound=BatchPublished)
C = TypeVar("C", bound=Checkpoint)


@dataclass(slots=True)
class LogState(Generic[P, C]):
    """The fold of the control log up to `next_offset` (exclusive); a kind's own state inherits from it.

    `complete` is the last event by which positions moved. `partitions` are all that ever had a position, with the last
    one, and `topic_ids` the UUIDs that their topics had then. `resumed` is the last `RESUMED`, whatever followed it.

    A log that begins above 0 was trimmed. Its first checkpoint that reaches down to `log_start` then stands for what is
    missing, although it comes after events that were left: `started` and `abandoned` hold what is still in the log, all
    else is as if nothing had been deleted. Whoever wrote a checkpoint went on to delete below `deletable` at most.
    `oldest_ms` is the first event's time.
    """

    log_start: int = 0
    next_offset: int = 0
    rules: Rules = ALL
    bound: PipelineBound | None = None
    paused: Paused | None = None
    resumed: Resumed | None = None
    checkpoint: Logged[C] | None = None
    complete: Logged[P] | None = None
    started: PackedDict[Logged[BatchStarted]] = field(default_factory=PackedDict[Logged[BatchStarted]])
    abandoned: set[str] = field(default_factory=set[str])
    partitions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    topic_ids: dict[str, str] = field(default_factory=dict[str, str])
    deletable: int = 0
    oldest_ms: int | None = None
    answer: str = ""
    """The id of the last RESUMED or RESOLVED; empty if nobody ever wrote one."""
    _published_ids: set[str] = field(default_factory=set[str])
    _first_of: dict[str, Logged[Event]] = field(default_factory=dict[str, Logged[Event]])
    _pause_seen: bool = False

    def advance(self, offset: int, event: Event) -> None:
        """Come to the event at `offset`, whatever it is.

        Raises ProtocolError if it was folded before: files named twice would be committed twice.
        """
        if offset < self.next_offset:
            raise ProtocolError(
                f"{event.event_type} at control offset {offset} came after the log was read up to {self.next_offset}",
                hint="run again; if it stays, report it: nothing was committed",
                code=Code.FAULT,
            )
        self.next_offset = offset + 1
        if self.oldest_ms is None:
            self.oldest_ms = event.written_at_ms
        self._first_of.setdefault(event.pipeline_id, Logged(offset, event))

    def reached(self, end: int) -> None:
        """The log has been read up to `end`, which may lie behind trailing control records."""
        self.next_offset = max(self.next_offset, end)

    def restart(self, log_start: int) -> None:
        """Forget everything: the log is read again, from `log_start`. In place, as others hold on to the state."""
        fresh = type(self)(log_start=log_start, next_offset=log_start, rules=self.rules)
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))

    def bind(self, _offset: int, event: PipelineBound) -> None:
        """The first one counts, and the same pipeline bound anew by the answer to a finding."""
        if self.bound is None or self.bound.pipeline_id == event.pipeline_id:
            self.bind_to(event)

    def bind_to(self, bound: PipelineBound) -> None:
        """What is known from here on of whose log it is; a kind may have waited for it."""
        self.bound = bound

    def pause(self, _offset: int, event: Paused) -> None:
        self.paused, self._pause_seen = event, True

    def resume(self, _offset: int, event: Resumed) -> None:
        self.paused, self.resumed, self._pause_seen = None, event, True
        self.answer = event.event_id

    def resolve(self, _offset: int, event: Resolved) -> None:
        self.answer = event.event_id

    def start(self, offset: int, event: BatchStarted) -> None:
        """For people; nothing that is published or committed rests on it, as on `abandon`."""
        self.started[event.batch_id] = Logged(offset, event)

    def abandon(self, _offset: int, event: BatchAbandoned) -> None:
        self.abandoned.add(event.batch_id)

    def publish(self, offset: int, event: P) -> None:
        """A batch counts from here on, and so do its positions if it moves them."""
        self._published_ids.add(intern(event.batch_id))
        if event.moves_positions:
            self.complete = Logged(offset, event)
            self.partitions.update(dense_to_offsets(event.positions))
            self.topic_ids.update(event.topic_ids)

    def restore(self, offset: int, event: C, *, whole: bool = True) -> bool:
        """Fold a checkpoint; returns whether it now stands for what a trimmed log lacks.

        It stands for nothing if it is not `whole`, or if a batch was published between `up_to_offset` and the
        checkpoint itself: how that batch follows the earlier ones can't be told from what is left. Whoever trims looks
        for that before deleting. Where the log has a pause, a resume, an answer or a publish, it is later than any that
        the checkpoint knows, or the same.
        """
        # One without the field was written by an earlier version.
        deleted = event.delete_below if event.delete_below >= 0 else event.up_to_offset
        self.deletable = max(self.deletable, deleted)
        published_since = self.complete is not None and self.complete.offset >= event.up_to_offset
        reached = self.checkpoint.event.up_to_offset if self.checkpoint else self.log_start - 1
        if not whole or published_since or event.up_to_offset <= reached:
            return False
        first, self.checkpoint = self.checkpoint is None, Logged(offset, event)
        if not first or self.log_start == 0:
            return False
        if self.bound is None or self.bound.pipeline_id != event.pipeline_id:
            # One that is still in the log may be the second of two first runs.
            self.bind_to(event.bound)
        if not self._pause_seen:
            self.paused = event.paused
        self.resumed = self.resumed or event.resumed
        self.answer = self.answer or event.answer
        self.partitions |= dense_to_offsets(event.former_positions) | dense_to_offsets(event.positions)
        self.topic_ids |= {**event.former_topic_ids, **event.topic_ids}
        return True

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
    def continued(self) -> tuple[str, ...]:
        """The ids that a plan made now may name as its predecessor; empty before bootstrap."""
        return (self.last_batch_id,) if self.last_batch_id else ()

    def outstanding(self) -> Sequence[Logged[BatchStarted | BatchPublished]]:
        """Batches planned on what is published now that are neither published nor given up.

        Running, or dead without a word. Any other could only become stale.
        """
        continued = self.continued
        open_ids = [each for each in self.started if each not in self._published_ids and each not in self.abandoned]
        begun = map(self.started.__getitem__, open_ids)
        return [logged for logged in begun if batch_id_of(logged.event.predecessor) in continued]

    @property
    def last_publish(self) -> P | C | None:
        """What last spoke of positions; None before bootstrap."""
        if self.complete:
            return self.complete.event
        return self.checkpoint.event if self.checkpoint else None

    @property
    def kept_ms(self) -> int | None:
        """When every position was committed last, by the writer's clock; None if the log has no such event."""
        return self.complete.event.written_at_ms if self.complete else None

    @property
    def last_batch_id(self) -> str | None:
        """The batch published last; None before bootstrap."""
        if self.complete:
            return self.complete.event.batch_id
        return self.checkpoint.event.last_complete_batch_id if self.checkpoint else None

    def positions(self) -> Offsets | None:
        """The positions after the last publish, or None before bootstrap."""
        return dense_to_offsets(self.last_publish.positions) if self.last_publish else None

    def kept(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The last position of every partition that ever had one, of topics that still are those of `topic_ids`."""
        same = {topic for topic, found in topic_ids.items() if self.topic_ids.get(topic, found) == found}
        return {at: offset for at, offset in self.partitions.items() if at.topic in same}


AnyState = LogState[Any, Any]
"""The state of a log of any kind."""

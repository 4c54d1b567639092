"""`SlotState`: what a control log says whose positions are moved by slots. Pure: no clock, no Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from calve.sink_core.control.checkpoint import checkpoint_of
from calve.sink_core.control.events import BatchPublished, BatchStarted, Logged
from calve.sink_core.control.fold import CORE, EventType
from calve.sink_core.control.slots.events import (
    GENERATION_ENDED,
    GENERATION_STARTED,
    POSITIONS_KEPT,
    POSITIONS_SET,
    GenerationEnded,
    GenerationStarted,
    PositionsKept,
    PositionsSet,
    SlotCheckpoint,
    SlotCommitted,
)
from calve.sink_core.control.state import LogState
from calve.sink_core.offsets import Offsets, TopicPartition, dense_to_offsets, offsets_to_dense

C = TypeVar("C", bound=SlotCheckpoint)


@dataclass(slots=True)
class SlotState(LogState[BatchPublished, C]):
    """The fold of such a log: `partitions` are the positions, whoever moved them last.

    `generation` is the last that is in the log, `ended` why it has, `commits` are its own. A slot of an earlier
    generation may commit after it, until the fence: its positions count, and it is no commit of the generation's.
    `most_slots` is the most that any generation had, `upstream_ids` say what was read when, `begins` where each
    partition began, `all_kept_ms` when every position was committed last. `by_driver` are ids of what the last
    generation's driver wrote in transactions of its own. Of a trimmed log `generation` is None if its event is gone;
    `last_batch_id` knows its id.
    """

    generation: Logged[GenerationStarted] | None = None
    ended: GenerationEnded | None = None
    commits: list[Logged[SlotCommitted]] = field(default_factory=list[Logged[SlotCommitted]])
    most_slots: int = 0
    upstream_ids: dict[str, str] = field(default_factory=dict[str, str])
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    all_kept_ms: int = 0
    by_driver: set[str] = field(default_factory=set[str])

    def start_generation(self, offset: int, event: GenerationStarted) -> None:
        if self.log_start == 0:
            # Of a trimmed log only the checkpoint knows when the first one was.
            self.all_kept_ms = self.all_kept_ms or event.written_at_ms
        self.publish(offset, event)
        self.generation, self.ended, self.commits = Logged(offset, event), None, []
        self.by_driver = set()
        self.most_slots = max(self.most_slots, event.slots)
        self.upstream_ids.update(event.upstream_ids)
        for at, begin in dense_to_offsets(event.positions).items():
            self.begins.setdefault(at, begin)

    def commit_slot(self, offset: int, event: SlotCommitted) -> None:
        self.publish(offset, event)
        if event.batch_id == self.last_batch_id:
            self.commits.append(Logged(offset, event))

    def set_positions(self, offset: int, event: PositionsSet) -> None:
        self.publish(offset, event)
        self.upstream_ids.update(event.upstream_ids)
        self.by_driver.add(event.event_id)

    def keep_positions(self, _offset: int, event: PositionsKept) -> None:
        self.all_kept_ms = event.written_at_ms
        self.by_driver.add(event.event_id)

    def end_generation(self, _offset: int, event: GenerationEnded) -> None:
        if event.batch_id == self.last_batch_id:
            self.ended = event

    def restore_slots(self, offset: int, event: C) -> bool:
        """As `restore`."""
        if not self.restore(offset, event):
            return False
        self.most_slots = max(self.most_slots, event.most_slots)
        self.upstream_ids = {**event.upstream_ids, **self.upstream_ids}
        self.begins = dense_to_offsets(event.begins) | self.begins
        self.all_kept_ms = max(self.all_kept_ms, event.kept_ms)
        return True

    @property
    def last_batch_id(self) -> str | None:
        """The last generation: the one whose id the token must carry."""
        if self.generation is not None:
            return self.generation.event.batch_id
        return self.checkpoint.event.last_complete_batch_id if self.checkpoint else None

    @property
    def kept_ms(self) -> int | None:
        """A slot commits the positions that it moves only: the others are as old as the last time that all were."""
        return self.all_kept_ms or None

    def positions(self) -> Offsets | None:
        """Every position that there is by the log, or None before the first generation."""
        return dict(self.partitions) if self.last_batch_id else None

    def outstanding(self) -> Sequence[Logged[BatchStarted | BatchPublished]]:
        """The last generation, until it has ended or was given up by the next."""
        return [self.generation] if self.generation and self.ended is None else []


SLOTS: tuple[EventType[SlotState[Any], Any], ...] = (
    *CORE,
    EventType(GenerationStarted, GENERATION_STARTED, SlotState.start_generation),
    EventType(PositionsSet, POSITIONS_SET, SlotState.set_positions),
    EventType(PositionsKept, POSITIONS_KEPT, SlotState.keep_positions),
    EventType(GenerationEnded, GENERATION_ENDED, SlotState.end_generation),
)
"""The types of event of every kind with slots; each has its own `SlotCommitted` and `SlotCheckpoint` beside them."""


def slot_checkpoint_of(state: SlotState[Any], *, delete_below: int) -> SlotCheckpoint:
    """As `checkpoint_of`, with what slots need."""
    core = checkpoint_of(state, delete_below=delete_below)
    common = {each.name: getattr(core, each.name) for each in fields(core)}
    common |= {"positions": offsets_to_dense(state.partitions), "topic_ids": dict(state.topic_ids)}
    common |= {"former_positions": {}, "former_topic_ids": {}}
    return SlotCheckpoint(
        **common,
        most_slots=state.most_slots,
        kept_ms=state.all_kept_ms,
        upstream_ids=dict(state.upstream_ids),
        begins=offsets_to_dense(state.begins),
    )

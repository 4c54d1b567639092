"""`MirrorState`: what a mirror's control log says, and the fold that makes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from calve.sink_core.control.events import Logged
from calve.sink_core.control.fold import EventType, Fold
from calve.sink_core.control.slots.events import POSITIONS_SET, PositionsSet
from calve.sink_core.control.slots.state import SLOTS, SlotState, slot_checkpoint_of
from calve.sink_core.mirror.events import (
    MIRROR_CHECKPOINT,
    RECORDS_COPIED,
    TOPIC_REFUSED,
    CopiedRange,
    MirrorCheckpoint,
    RecordsCopied,
    TopicRefused,
)
from calve.sink_core.offsets import TopicPartition, dense_to_offsets, offsets_to_dense


@dataclass(slots=True)
class MirrorState(SlotState[MirrorCheckpoint]):
    """The fold of a mirror's log: `partitions` are the next source offsets, by partition of the remote topic.

    `copied` are all ranges that are still in the log, of each partition in their order, since its source or remote
    topic was made anew last. `records` counts what each partition of a remote topic got, `target_ends` is the target's
    offset behind the last of it. `moves` are positions that were set by hand; `breaks` say where a range did not begin
    at the position before, which no protocol of ours explains. `refusals` are by remote topic what it stands still for,
    as it was said first.
    """

    copied: dict[TopicPartition, list[CopiedRange]] = field(default_factory=dict[TopicPartition, list[CopiedRange]])
    records: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    target_ends: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    moves: list[Logged[PositionsSet]] = field(default_factory=list[Logged[PositionsSet]])
    breaks: list[str] = field(default_factory=list[str])
    refusals: dict[str, TopicRefused] = field(default_factory=dict[str, TopicRefused])

    def set_positions(self, offset: int, event: PositionsSet) -> None:
        # Not by `super()`: a class with slots is made anew, and the function still knows the old one.
        SlotState.set_positions(self, offset, event)
        self.moves.append(Logged(offset, event))
        begun = dense_to_offsets(event.positions)
        for at, position in begun.items():
            self._pass(at, position)
        for at in [at for at in begun if at.topic in event.topic_ids or event.upstream_ids]:
            self.copied.pop(at, None)
            self.begins[at] = begun[at]
            if at.topic in event.topic_ids:
                self.records.pop(at, None)
                self.target_ends.pop(at, None)

    def copy(self, offset: int, event: RecordsCopied) -> None:
        for part in event.ranges:
            if (position := self.partitions.get(part.at, part.start)) != part.start:
                self.breaks.append(f"{part.at}: [{part.start}, {part.end}) follows position {position}, at {offset}")
        self.commit_slot(offset, event)
        for part in event.ranges:
            self.copied.setdefault(part.at, []).append(part)
            self.records[part.at] = self.records.get(part.at, 0) + part.records
            self._pass(part.at, part.end)
            if part.records:
                self.target_ends[part.at] = part.last

    def refuse(self, _offset: int, event: TopicRefused) -> None:
        before = self.refusals.get(event.topic)
        if not event.why:
            self.refusals.pop(event.topic, None)
        elif before is None or not event.repeats(before):
            self.refusals[event.topic] = event

    def _pass(self, at: TopicPartition, position: int) -> None:
        """What stands in no position's way any more is no refusal."""
        event = self.refusals.get(at.topic)
        if event is not None and event.partition == at.partition and position > event.offset:
            del self.refusals[at.topic]

    def restore_mirror(self, offset: int, event: MirrorCheckpoint) -> None:
        if self.restore_slots(offset, event):
            self.records = dense_to_offsets(event.records)
            self.target_ends = {**dense_to_offsets(event.target_ends), **self.target_ends}

    def mean_bytes(self, topic: str) -> float | None:
        """Bytes of a record of a remote topic, by what was copied last; None if the log has no record of it."""
        last = [
            next((p for p in reversed(parts) if p.records), None)
            for at, parts in self.copied.items()
            if at.topic == topic
        ]
        records = sum(part.records for part in last if part)
        return sum(part.bytes for part in last if part) / records if records else None

    def of_generation(self) -> list[CopiedRange]:
        """What the last generation has copied."""
        events = (logged.event for logged in self.commits)
        return [part for event in events if isinstance(event, RecordsCopied) for part in event.ranges]


MIRROR = Fold(
    MirrorState,
    (
        *SLOTS,
        EventType(PositionsSet, POSITIONS_SET, MirrorState.set_positions),
        EventType(RecordsCopied, RECORDS_COPIED, MirrorState.copy),
        EventType(TopicRefused, TOPIC_REFUSED, MirrorState.refuse),
        EventType(MirrorCheckpoint, MIRROR_CHECKPOINT, MirrorState.restore_mirror),
    ),
    kind="mirror",
)


def mirror_checkpoint_of(state: MirrorState, *, delete_below: int) -> MirrorCheckpoint:
    """As `checkpoint_of`, with what a mirror needs."""
    slots = slot_checkpoint_of(state, delete_below=delete_below)
    return MirrorCheckpoint(
        **{each.name: getattr(slots, each.name) for each in fields(slots)},
        records=offsets_to_dense(state.records),
        target_ends=offsets_to_dense(state.target_ends),
    )

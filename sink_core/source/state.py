"""`SourceState`: what a source's control log says, and the fold that makes it. Pure."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, fields

from calve.sink_core.control.fold import EventType, Fold
from calve.sink_core.control.slots.events import GENERATION_STARTED, GenerationStarted
from calve.sink_core.control.slots.state import SLOTS, SlotState, slot_checkpoint_of
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.source.events import ROWS_SENT, SOURCE_CHECKPOINT, RowsSent, SourceCheckpoint, Written
from calve.sink_core.source.flat_map import FlatMap


@dataclass(slots=True)
class SourceState(SlotState[SourceCheckpoint]):
    """The fold of a source's log: `offsets` are source offsets by source partition, whoever moved them last.

    The offsets topic has the same, and is the truth of it. `breaks` say where an offset did not follow the one before,
    which no protocol of ours explains: `records` and `dead_letters` count all that were ever sent. `written` is what
    each partition of a topic got, as far as the log goes back, since the topic was made anew last; in the order of its
    offsets.
    """

    offsets: dict[FlatMap, FlatMap] = field(default_factory=dict[FlatMap, FlatMap])
    records: int = 0
    dead_letters: int = 0
    breaks: list[str] = field(default_factory=list[str])
    written: dict[TopicPartition, list[Written]] = field(default_factory=dict[TopicPartition, list[Written]])

    def start_generation(self, offset: int, event: GenerationStarted) -> None:
        anew = {topic for topic, found in event.topic_ids.items() if self.topic_ids.get(topic, found) != found}
        self.written = {at: runs for at, runs in self.written.items() if at.topic not in anew}
        # Not by `super()`: a class with slots is made anew, and the function still knows the old one.
        SlotState.start_generation(self, offset, event)

    def send(self, offset: int, event: RowsSent) -> None:
        for each in event.moved:
            partition = FlatMap.parsed(each.partition)
            known = self.offsets.get(partition)
            if known is not None and each.before != known.json:
                self.breaks.append(f"{each.partition}: moved from {each.before or 'none'}, and was at {known.json}")
        self.commit_slot(offset, event)
        for each in event.moved:
            if each.after:
                self.offsets[FlatMap.parsed(each.partition)] = FlatMap.parsed(each.after)
            else:
                self.offsets.pop(FlatMap.parsed(each.partition), None)
        self.records += sum(each.records for each in event.written) - event.dead_letters
        self.dead_letters += event.dead_letters
        for each in event.written:
            # Of two slots that wrote to one partition who committed first may have begun later.
            insort(self.written.setdefault(each.at, []), each, key=lambda run: run.first)

    def restore_source(self, offset: int, event: SourceCheckpoint) -> None:
        if self.restore_slots(offset, event):
            before = {FlatMap.parsed(each): FlatMap.parsed(at) for each, at in event.offsets.items()}
            self.offsets = {**before, **self.offsets}
            self.records, self.dead_letters = event.records, event.dead_letters

    def of_generation(self) -> list[RowsSent]:
        """What the last generation has sent."""
        return [logged.event for logged in self.commits if isinstance(logged.event, RowsSent)]


SOURCE = Fold(
    SourceState,
    (
        *SLOTS,
        EventType(GenerationStarted, GENERATION_STARTED, SourceState.start_generation),
        EventType(RowsSent, ROWS_SENT, SourceState.send),
        EventType(SourceCheckpoint, SOURCE_CHECKPOINT, SourceState.restore_source),
    ),
    kind="source",
)


def source_checkpoint_of(state: SourceState, *, delete_below: int) -> SourceCheckpoint:
    """As `checkpoint_of`, with what a source needs."""
    slots = slot_checkpoint_of(state, delete_below=delete_below)
    return SourceCheckpoint(
        **{each.name: getattr(slots, each.name) for each in fields(slots)},
        offsets={partition.json: at.json for partition, at in sorted(state.offsets.items())},
        records=state.records,
        dead_letters=state.dead_letters,
    )

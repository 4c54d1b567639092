"""What a mirror's log says of its copies, and that a trimmed log says the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.control.checkpoint import Kept
from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.control.trim import first_kept
from calve.sink_core.mirror.state import MirrorState, mirror_checkpoint_of
from calve.sink_core.offsets import TopicPartition
from tests.codes import names
from tests.unit.mirror.build import (
    BOUND,
    ONE,
    PIPELINE_ID,
    REMOTE,
    ZERO,
    copied,
    ended,
    kept,
    log,
    moved_by_hand,
    part,
    started,
)


def test_what_slots_copied_is_known_by_partition_in_its_order() -> None:
    one, two, three = part(ZERO, 0, [0, 1], 3, first=0), part(ONE, 0, [0], 1, first=0), part(ZERO, 3, [3], 5, first=3)
    state = log(
        BOUND, started("g1", {ZERO: 0, ONE: 0}), copied("g1", one), copied("g1", two, slot=1), copied("g1", three)
    )
    assert state.copied == {ZERO: [one, three], ONE: [two]}
    assert state.records == {ZERO: 3, ONE: 1}
    assert state.target_ends == {ZERO: 4, ONE: 1}
    assert state.partitions == {ZERO: 5, ONE: 1}
    assert state.of_generation() == [one, two, three]


def test_a_late_slot_of_an_earlier_generation_copied_and_the_generation_did_not() -> None:
    late, own = part(ZERO, 0, [0], 1, first=0), part(ZERO, 1, [1], 2, first=2)
    state = log(BOUND, started("g1", {ZERO: 0}), started("g2"), copied("g1", late), copied("g2", own))
    assert state.copied == {ZERO: [late, own]}
    assert state.of_generation() == [own]


def test_a_range_without_records_leaves_the_target_end_as_it_was() -> None:
    ranges = part(ZERO, 0, [0, 1], 2, first=0), part(ZERO, 2, [], 9)
    state = log(BOUND, started("g1", {ZERO: 0}), *(copied("g1", each) for each in ranges))
    assert state.target_ends == {ZERO: 2}
    assert state.partitions == {ZERO: 9}


def test_ranges_that_follow_each_other_break_nothing_and_others_are_named() -> None:
    begun = (BOUND, started("g1", {ZERO: 0}), copied("g1", part(ZERO, 0, [0], 4)))
    assert log(*begun, copied("g1", part(ZERO, 4, [4], 6))).breaks == []
    [broken] = log(*begun, copied("g1", part(ZERO, 2, [2], 6))).breaks
    names(broken, ZERO, "[2, 6)", 4, 3)


def test_a_record_is_as_large_as_those_that_were_copied_last() -> None:
    small = part(ZERO, 0, [0, 1], 2)
    large = replace(part(ZERO, 2, [2], 3), bytes=500)
    state = log(BOUND, started("g1", {ZERO: 0, ONE: 0}), copied("g1", small), copied("g1", large, part(ONE, 0, [0], 1)))
    assert state.mean_bytes(REMOTE) == 255.0
    assert state.mean_bytes("eu.clicks") is None


Step = tuple[str, int]


@dataclass
class Writer:
    """Writes a log as drivers, slots and people do."""

    events: list[Event] = field(default_factory=lambda: [BOUND, started("g0", {ZERO: 0})])
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {ZERO: 0})
    target: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    generations: list[str] = field(default_factory=lambda: ["g0"])

    def do(self, step: Step) -> None:
        """One step; the number says with what."""
        getattr(self, step[0])(step[1])

    def lead(self, number: int) -> None:
        new = {} if number % 3 else {TopicPartition(REMOTE, len(self.positions)): number}
        self.positions |= new
        self.generations.append(f"g{len(self.events)}")
        ids = {f"t{number % 4}": f"id {number}"}
        self.events.append(started(self.generations[-1], new, slots=number % 7, upstream_ids=ids))

    def copy(self, number: int) -> None:
        """By a slot of the last generation, or of the one before that was not fenced yet."""
        at = sorted(self.positions)[number % len(self.positions)]
        just_recorded = getattr(self.events[-1], "event_type", "") == "GENERATION_STARTED"
        generation = self.generations[-2 if just_recorded and len(self.generations) > 1 and number % 2 else -1]
        start, target = self.positions[at], self.target.get(at, 0)
        offsets = range(start, start + number % 4)
        self.events.append(copied(generation, part(at, start, offsets, start + number + 1, first=target)))
        self.positions[at], self.target[at] = start + number + 1, target + len(offsets) + 1

    def end(self, _number: int) -> None:
        self.events.append(ended(self.generations[-1]))

    def keep(self, _number: int) -> None:
        self.events.append(kept(self.generations[-1]))

    def set(self, number: int) -> None:
        at = sorted(self.positions)[number % len(self.positions)]
        self.positions[at] = number
        self.events.append(moved_by_hand(self.generations[-1], {at: number}))

    def pause(self, number: int) -> None:
        paused = Paused(pipeline_id=PIPELINE_ID, by="u", reason=str(number))
        self.events.append(paused if number % 2 else Resumed(pipeline_id=PIPELINE_ID, by="u"))


steps = st.lists(
    st.tuples(st.sampled_from(["lead", "copy", "copy", "copy", "end", "keep", "set", "pause"]), st.integers(0, 12)),
    max_size=25,
)


@dataclass(frozen=True)
class Trimmed:
    """A log with a checkpoint of what was there when it was `seen`, and the same without what a trim then deleted."""

    whole: MirrorState
    rest: MirrorState


def trimmed(events: list[Event], seen: int) -> Trimmed:
    state = log(*events[:seen])
    needed = [Kept(logged.offset, "at work") for logged in state.outstanding()]
    below = first_kept(state, needed, first_young=state.next_offset, older_than_s=0).offset
    checkpoint = mirror_checkpoint_of(state, delete_below=below)
    after = [*events[:seen], checkpoint, *events[seen:]]
    return Trimmed(log(*after), log(*after[below:], start=below))


@given(steps, steps)
def test_a_trimmed_log_says_what_the_whole_one_says(before: list[Step], since: list[Step]) -> None:
    writer = Writer()
    for step in before:
        writer.do(step)
    seen = len(writer.events)
    for step in since:
        writer.do(step)
    found = trimmed(writer.events, seen)
    for asked in (
        "last_batch_id",
        "partitions",
        "begins",
        "topic_ids",
        "upstream_ids",
        "most_slots",
        "kept_ms",
        "records",
        "target_ends",
        "breaks",
    ):
        assert getattr(found.rest, asked) == getattr(found.whole, asked), asked
    assert found.rest.positions() == found.whole.positions()
    assert found.rest.outstanding() == found.whole.outstanding()
    assert found.rest.bound is not None
    assert found.rest.bound.pipeline_id == PIPELINE_ID
    assert (found.rest.paused is None) == (found.whole.paused is None)


@given(steps, steps)
def test_what_is_left_of_the_copies_is_the_end_of_them(before: list[Step], since: list[Step]) -> None:
    writer = Writer()
    for step in before:
        writer.do(step)
    seen = len(writer.events)
    for step in since:
        writer.do(step)
    found = trimmed(writer.events, seen)
    for at, ranges in found.rest.copied.items():
        assert ranges == found.whole.copied[at][-len(ranges) :]

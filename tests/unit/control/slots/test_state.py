"""What a log of slots adds up to: generations, commits of earlier ones that come late, and what a trim leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from calve.sink_core.control.events import Event, PipelineBound
from calve.sink_core.control.fold import EventType, Fold
from calve.sink_core.control.slots.events import (
    SLOT_CHECKPOINT,
    SLOT_COMMITTED,
    GenerationEnded,
    GenerationStarted,
    PositionsKept,
    PositionsSet,
    SlotCheckpoint,
    SlotCommitted,
)
from calve.sink_core.control.slots.state import SLOTS, SlotState, slot_checkpoint_of
from calve.sink_core.offsets import TopicPartition

ID = "7c9d"
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved(SlotCommitted):
    """The commit of a kind that moves nothing else than positions."""

    event_type: ClassVar[str] = "MOVED"


State = SlotState[SlotCheckpoint]
KIND: Fold[State] = Fold(
    State,
    (
        *SLOTS,
        EventType(Moved, SLOT_COMMITTED, SlotState.commit_slot),
        EventType(SlotCheckpoint, SLOT_CHECKPOINT, SlotState.restore_slots),
    ),
    kind="moved",
)


def fold(*events: Event, start: int = 0) -> State:
    """Of a log that begins at `start`, each event a second after the one before."""
    timed = (replace(event, written_at_ms=1000 * (1 + start + place)) for place, event in enumerate(events))
    return KIND.apply_all(State(log_start=start, next_offset=start), enumerate(timed, start))


def bound() -> PipelineBound:
    return PipelineBound(
        pipeline_id=ID, pipeline="p", deployment="d", fingerprint="f", cluster_id="c", control_topic_id="t"
    )


def started(generation: str, *starts: int, slots: int = 1) -> GenerationStarted:
    """With start positions of partitions from 0 on; -1 for those it has none of."""
    return GenerationStarted(
        pipeline_id=ID,
        batch_id=generation,
        predecessor="",
        slots=slots,
        positions={"t": starts} if starts else {},
        topic_ids={"t": "id"} if starts else {},
        upstream_ids={generation: "up"},
    )


def moved(generation: str, *positions: int) -> Moved:
    return Moved(pipeline_id=ID, batch_id=generation, slot=0, positions={"t": positions})


def ended(generation: str) -> GenerationEnded:
    return GenerationEnded(pipeline_id=ID, batch_id=generation, why="done")


def kept(generation: str) -> PositionsKept:
    return PositionsKept(pipeline_id=ID, batch_id=generation)


def test_a_log_without_a_generation_has_no_position() -> None:
    state = fold(bound())
    assert state.last_batch_id is None
    assert state.positions() is None
    assert list(state.outstanding()) == []


def test_a_generation_leads_from_its_record_on_with_its_start_positions() -> None:
    state = fold(bound(), started("g1", 5, 0, slots=4))
    assert state.last_batch_id == "g1"
    assert state.positions() == {ZERO: 5, ONE: 0}
    assert state.begins == {ZERO: 5, ONE: 0}
    assert state.most_slots == 4


def test_a_commit_moves_the_positions_of_its_own_partitions_only() -> None:
    state = fold(bound(), started("g1", 5, 0), moved("g1", 9), moved("g1", -1, 3))
    assert state.positions() == {ZERO: 9, ONE: 3}
    assert state.begins == {ZERO: 5, ONE: 0}
    assert [logged.offset for logged in state.commits] == [2, 3]


def test_a_commit_after_the_next_generation_was_recorded_moves_positions_and_is_none_of_its_own() -> None:
    state = fold(bound(), started("g1", 0), started("g2"), moved("g1", 4), moved("g2", 7))
    assert state.last_batch_id == "g2"
    assert state.positions() == {ZERO: 7}
    assert [logged.event.batch_id for logged in state.commits] == ["g2"]


def test_a_late_commit_does_not_lead_again() -> None:
    state = fold(bound(), started("g1", 0), started("g2"), moved("g1", 4))
    assert state.last_batch_id == "g2"
    assert state.continued == ("g2",)


def test_ids_of_as_many_slots_as_any_generation_had_are_to_be_fenced() -> None:
    assert fold(bound(), started("g1", slots=6), started("g2", slots=2), started("g3", slots=0)).most_slots == 6


def test_a_generation_is_outstanding_until_it_ends_or_another_leads() -> None:
    begun = (bound(), started("g1", 0))
    assert [logged.event.batch_id for logged in fold(*begun).outstanding()] == ["g1"]
    assert list(fold(*begun, ended("g1")).outstanding()) == []
    assert [logged.event.batch_id for logged in fold(*begun, started("g2")).outstanding()] == ["g2"]


def test_the_end_of_an_earlier_generation_does_not_end_the_last_one() -> None:
    state = fold(bound(), started("g1", 0), started("g2"), ended("g1"))
    assert state.ended is None
    assert [logged.event.batch_id for logged in state.outstanding()] == ["g2"]


def test_positions_set_by_hand_are_positions() -> None:
    by_hand = PositionsSet(pipeline_id=ID, batch_id="g2", positions={"t": (2,)}, by="u", reason="r")
    state = fold(bound(), started("g1", 0), moved("g1", 9), started("g2"), by_hand)
    assert state.positions() == {ZERO: 2}
    assert by_hand.event_id in state.by_driver
    # Only the last generation's driver asks for what it wrote.
    assert fold(bound(), started("g1", 0), by_hand, started("g2")).by_driver == set()


@pytest.mark.parametrize(
    ("events", "ms"),
    [
        ((), None),
        ((started("g1", 0),), 2_000),
        ((started("g1", 0), started("g2", -1, 0), moved("g2", 4)), 2_000),
        ((started("g1", 0), started("g2"), kept("g2"), moved("g2", 4)), 4_000),
    ],
)
def test_all_positions_were_committed_last_when_they_were_kept_or_began(
    events: tuple[Event, ...], ms: int | None
) -> None:
    assert fold(bound(), *events).kept_ms == ms


def test_a_checkpoint_stands_for_what_was_trimmed() -> None:
    events = (bound(), started("g1", 5, 0, slots=4), moved("g1", 9), ended("g1"), started("g2"), moved("g2", -1, 3))
    whole = fold(*events)
    checkpoint = slot_checkpoint_of(whole, delete_below=5)
    trimmed = fold(events[5], checkpoint, start=5)
    assert trimmed.last_batch_id == "g2"
    assert trimmed.positions() == {ZERO: 9, ONE: 3}
    assert trimmed.begins == {ZERO: 5, ONE: 0}
    assert trimmed.most_slots == 4
    assert trimmed.upstream_ids == whole.upstream_ids
    # Its generation was deleted, and so it can't be outstanding: a trim leaves one that is.
    assert trimmed.generation is None
    assert list(trimmed.outstanding()) == []


def test_a_generation_that_a_trim_left_is_not_taken_for_the_time_when_all_positions_were_committed() -> None:
    events = (bound(), started("g1", 0, 0), ended("g1"), started("g2"), moved("g2", 4))
    whole = fold(*events)
    assert whole.kept_ms == 2_000
    assert fold(*events[3:], slot_checkpoint_of(whole, delete_below=3), start=3).kept_ms == 2_000


def test_what_comes_after_a_checkpoint_counts_on_from_it() -> None:
    whole = fold(bound(), started("g1", 5, slots=3), moved("g1", 9))
    checkpoint = slot_checkpoint_of(whole, delete_below=3)
    state = fold(checkpoint, started("g2", -1, 0, slots=5), moved("g1", 11), start=3)
    assert state.last_batch_id == "g2"
    assert state.positions() == {ZERO: 11, ONE: 0}
    assert state.begins == {ZERO: 5, ONE: 0}
    assert state.most_slots == 5

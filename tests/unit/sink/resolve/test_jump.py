from __future__ import annotations

import pytest

from calve.sink_core.control.decision import Verdict
from calve.sink_core.offsets import OffsetRange, Position, Positions, TopicPartition
from calve.sink_core.sink.resolve.jump import Jump
from calve.sink_core.sink.resolve.positions import skipped
from tests.unit.tables.log.build import TOPIC, at, complete, log, positions

STATE = log(complete("b1", {TOPIC: (10, 20)}))
SEEN = {at(0): Position(15, ""), at(1): Position(20, "b1")}
TOKEN = TopicPartition("control", 0)
JUMP = Jump("b1", (OffsetRange(TOPIC, 0, 10, 15), OffsetRange(TOPIC, 1, 20, 20)), {TOPIC: "id-1"}, SEEN)


def test_a_jump_is_published_on_what_it_was_planned_on() -> None:
    assert JUMP.decide("j", SEEN, STATE).verdict is Verdict.PUBLISH
    assert JUMP.lost == {at(0): 5}


def test_a_jump_that_landed_before_is_not_published_again() -> None:
    landed = log(complete("b1", {TOPIC: (10, 20)}), complete("j", {TOPIC: (15, 20)}, predecessor="b1"))
    assert JUMP.decide("j", positions("j", 15, 20), landed).verdict is Verdict.ALREADY_PUBLISHED


@pytest.mark.parametrize(
    "found",
    [
        {**SEEN, at(0): Position(16, "")},
        {**SEEN, at(0): Position(15, "b1")},
        {at(1): SEEN[at(1)]},
        {**SEEN, TOKEN: Position(0, "+given-up")},
    ],
    ids=["moved on", "other metadata", "gone", "given up"],
)
def test_a_position_that_changed_makes_a_jump_stale(found: Positions) -> None:
    assert JUMP.decide("j", found, STATE).verdict is Verdict.STALE


def test_a_publish_in_between_makes_a_jump_stale() -> None:
    since = log(complete("b1", {TOPIC: (10, 20)}), complete("b2", {TOPIC: (15, 20)}, predecessor="b1"))
    assert JUMP.decide("j", SEEN, since).verdict is Verdict.STALE


def test_the_ledger_gets_a_row_for_what_moves_and_for_what_begins_anew() -> None:
    begins = Jump("b1", (OffsetRange(TOPIC, 0, 3, 3), *JUMP.moves[1:]), {}, SEEN, frozenset({at(0)}))
    assert [(c.partition, c.start, c.end, c.lost) for c in JUMP.counts(("t",))] == [(0, 10, 15, 5)]
    assert [(c.partition, c.start, c.end, c.lost, c.written) for c in begins.counts(("t",))] == [(0, 3, 3, 0, {"t": 0})]


def test_only_what_lies_below_the_log_start_of_that_topic_is_skipped() -> None:
    stored = {at(0): 10, at(1): 20, at(0, "other"): 5}
    starts = {at(0): 12, at(1): 3, at(0, "other"): 9}
    assert [(r.at, r.start, r.end) for r in skipped(stored, starts, topic=TOPIC)] == [
        (at(0), 10, 12),
        (at(1), 20, 20),
        (at(0, "other"), 5, 5),
    ]

"""A checkpoint stands for what was trimmed below it, and adds nothing where the events are still there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.offsets import NOWHERE
from calve.sink_core.tables.log.events import TableCheckpoint
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.parts import in_parts, joined
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead
from calve.sink_core.tables.log.state import CommitState
from tests.unit.tables.log.build import (
    PIPELINE_ID,
    TABLE,
    TOPIC,
    UUID,
    at,
    bound,
    checkpoint,
    complete,
    log,
    reported,
    through,
    written,
)

PAUSED = Paused(pipeline_id=PIPELINE_ID, by="ana", reason="migration")
RESUMED = Resumed(pipeline_id=PIPELINE_ID, by="bo")
FULL = checkpoint(
    5,
    paused_by="ana",
    positions={TOPIC: (10, 20)},
    topic_ids={TOPIC: "id-1"},
    through_ms={TOPIC: (500, 300)},
    reported={TABLE: {UUID: 4, "uuid-0": 2}},
)


def test_a_trimmed_log_starts_with_what_the_checkpoint_says() -> None:
    state = log(FULL, start=5)
    assert state.bound is not None
    assert (state.bound.pipeline_id, state.bound.control_topic_id) == (PIPELINE_ID, "topic-1")
    assert state.positions() == {at(0): 10, at(1): 20}
    assert state.last_publish == FULL
    assert state.reported_offset(TABLE, UUID) == 4
    assert state.reported_offset(TABLE, "uuid-0") == 2
    assert state.valid_through_ms(6) == 300
    assert (state.next_offset, state.limit) == (6, 6)


def test_a_pause_outlives_its_event_with_its_reason_and_its_time() -> None:
    paused = log(replace(FULL, paused_reason="migration", paused_at_ms=7), start=5).paused
    assert paused is not None
    assert (paused.by, paused.reason, paused.written_at_ms) == ("ana", "migration", 7)


def test_a_checkpoint_of_a_version_that_did_not_keep_the_reason_is_a_pause_too() -> None:
    paused = log(FULL, start=5).paused
    assert paused is not None
    assert (paused.by, paused.reason) == ("ana", "paused before the last checkpoint")
    assert paused.written_at_ms == FULL.written_at_ms


def test_the_last_answer_outlives_its_event() -> None:
    state = log(replace(FULL, resumed_by="bo", resumed_at_ms=7, answer="a1"), start=5)
    assert (state.resumed and state.resumed.by, state.answer) == ("bo", "a1")
    assert log(FULL, start=5).answer == ""
    assert log(RESUMED, replace(FULL, answer="a1"), start=5).answer == RESUMED.event_id


@pytest.mark.parametrize(("events", "by"), [((RESUMED, FULL), None), ((FULL, RESUMED), None), ((PAUSED, FULL), "ana")])
def test_a_pause_or_resume_still_in_the_log_is_later_than_the_checkpoints(
    events: tuple[Event, ...], by: str | None
) -> None:
    paused = log(*events, start=5).paused
    assert (paused and paused.by) == by
    assert paused is None or paused.reason == "migration"


def test_the_trimmed_binding_was_first_even_if_another_is_still_in_the_log() -> None:
    state = log(bound(pipeline_id="second of two first runs"), FULL, start=5)
    assert state.bound is not None
    assert state.bound.pipeline_id == PIPELINE_ID


def test_where_the_events_are_still_there_the_checkpoint_adds_nothing() -> None:
    events = [
        bound(),
        through("b1", 500, 300),
        written("b2"),
        through("b2", 700, 400),
        reported(4),
        PAUSED,
    ]
    summary = checkpoint(
        6,
        paused_by="ana",
        positions={TOPIC: (10, 10)},
        through_ms={TOPIC: (700, 400)},
        reported={TABLE: {UUID: 4}},
    )
    without, with_it = log(*events), log(*events, summary)
    assert with_it.bound == without.bound
    assert with_it.paused == PAUSED
    assert with_it.last_publish == without.last_publish
    assert with_it.reported == without.reported
    assert [with_it.valid_through_ms(n) for n in range(7)] == [without.valid_through_ms(n) for n in range(7)]
    assert with_it.pending(TABLE, UUID, 0) == without.pending(TABLE, UUID, 0)


def test_the_highest_checkpoint_counts_whatever_their_order() -> None:
    low, high = replace(FULL, up_to_offset=5), checkpoint(8, positions={TOPIC: (99,)})
    for events in ((low, high), (high, low)):
        state = log(*events, start=5)
        assert state.checkpoint is not None
        assert state.checkpoint.event.up_to_offset == 8
        assert state.positions() == {at(0): 99}


def test_a_publish_still_in_the_log_is_later_than_what_the_checkpoint_says() -> None:
    published = complete("b7", {TOPIC: (70,)})
    for events in ((FULL, published), (published, FULL)):
        assert log(*events, start=5).last_publish == published


def test_a_table_lacks_what_was_published_after_the_checkpoint() -> None:
    state = log(FULL, written("b7"), complete("b7"), start=5)
    assert [logged.offset for logged in state.pending(TABLE, UUID, state.reported_offset(TABLE, UUID))] == [6]


def test_reports_and_promises_after_a_checkpoint_go_on_from_it() -> None:
    state = log(FULL, reported(3), reported(9), through("b7", NOWHERE, 800), start=5)
    assert state.reported_offset(TABLE, UUID) == 9
    assert state.valid_through_ms(9) == 500


def test_the_fold_reads_no_clock() -> None:
    def folded(event: TableCheckpoint) -> CommitState:
        return log(event, start=5)

    assert folded(FULL) == folded(FULL)


def letters(number: int, ranges: int) -> RangeJob:
    """A job that has moved so many dead letters, each a range of its own."""
    parts = tuple(RangeRead(TOPIC, 0, 10 * i, 10 * i + 1, 1) for i in range(ranges))
    return RangeJob(f"job-{number}", TABLE, False, 0, parts, letters=True, topic_ids={TOPIC: "id-1"})


JOBS = (letters(1, 7), letters(2, 0), letters(3, 25), letters(4, 1))


@pytest.mark.parametrize("most", [2, 3, 9, 10, 36, 1_000])
def test_a_checkpoint_in_parts_says_what_the_whole_one_does(most: int) -> None:
    whole = replace(FULL, range_jobs=JOBS)
    parts, rest = in_parts(whole, most)
    assert all(sum(1 + len(job.ranges) for job in part.range_jobs) <= most for part in parts)
    assert (rest.parts, bool(rest.range_jobs)) == (len(parts), not parts)
    assert bool(parts) == (most < sum(1 + len(job.ranges) for job in JOBS))
    state = log(*parts, rest, start=5)
    assert list(state.range_jobs.values()) == list(JOBS) == list(log(whole, start=5).range_jobs.values())


def test_a_checkpoint_that_lacks_a_part_stands_for_nothing() -> None:
    parts, rest = in_parts(replace(FULL, range_jobs=JOBS), 9)
    for left in (parts[1:], parts[:-1], ()):
        state = log(*left, rest, start=5)
        assert (state.checkpoint, state.range_jobs, state.last_publish) == (None, {}, None)
    again, next_rest = in_parts(replace(FULL, event_id="next", up_to_offset=9, range_jobs=JOBS), 9)
    state = log(*parts[1:], rest, *again, next_rest, start=5)
    assert state.checkpoint is not None
    assert state.checkpoint.event.event_id == "next"
    assert list(state.range_jobs.values()) == list(JOBS)


def test_each_part_of_any_number_of_jobs_fits_into_a_message() -> None:
    jobs = tuple(letters(number, 10_000) for number in range(30))
    parts, rest = in_parts(replace(FULL, range_jobs=jobs))
    assert max(len(SINK.encode(event)) for event in (*parts, rest)) < 500_000
    assert joined(parts) == jobs

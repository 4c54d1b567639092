"""What the control log says, rule by rule. A log made here holds its events at the offsets 0, 1, 2, … in that order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.control.events import BatchAbandoned, Logged, Paused, Resumed
from calve.sink_core.offsets import NOWHERE
from calve.sink_core.tables.log.events import CommitComplete
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.range_parts import Resolves
from calve.sink_core.tables.log.state import UNREAD, CommitState
from tests.codes import raises
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
    started,
    through,
    written,
)

RESOLVES = Resolves(finding="table-rolled-back", tagged_snapshot_id=1, base_snapshot_id=None, covers_offset=3)


def lacking(state: CommitState, stored_offset: int, table: str = TABLE, uuid: str = UUID) -> list[int]:
    """The control offsets of what a table with this stored offset lacks."""
    return [logged.offset for logged in state.pending(table, uuid, stored_offset)]


def test_the_first_binding_in_the_log_wins() -> None:
    first = bound(pipeline_id="first")
    assert log(first, bound(pipeline_id="second")).bound == first


def test_an_event_of_another_pipeline_is_found_and_the_binding_of_a_second_first_run_is_not() -> None:
    ours = [bound(), bound(pipeline_id="second"), written("b1"), complete("b1")]
    assert log(*ours).foreign is None
    theirs = replace(complete("b2"), pipeline_id="another")
    state = log(*ours, theirs, bound(pipeline_id="third", pipeline="another"))
    assert state.foreign == Logged(4, theirs)
    assert log(*ours, bound(pipeline_id="third", pipeline="another")).foreign is not None


def test_an_unbound_log_is_nobody_s_and_a_trimmed_one_that_of_its_checkpoint() -> None:
    theirs = replace(complete("b2"), pipeline_id="another")
    assert log(theirs).foreign is None
    second = bound(pipeline_id="second")
    assert log(second, complete("b1"), start=7).foreign is None
    trimmed = [second, complete("b1"), checkpoint(9, last_complete_batch_id="b1")]
    assert log(*trimmed, start=7).foreign is None
    assert log(*trimmed, theirs, start=7).foreign == Logged(10, theirs)


def test_an_event_taken_in_twice_is_refused_before_it_can_be_committed_twice() -> None:
    state = log(written("b1"), complete("b1"))
    with raises(Code.FAULT, "DATA_WRITTEN", 0, 2):
        SINK.apply(state, 0, written("b1"))
    assert lacking(state, 0) == [0]


def test_the_log_counts_as_read_up_to_the_offset_after_its_last_event() -> None:
    state = log(bound())
    assert state.next_offset == 1
    state.reached(7)
    state.reached(3)
    assert (state.next_offset, state.limit) == (7, 7)


def test_the_highest_stored_offset_reported_per_table_and_uuid_counts_not_the_last() -> None:
    state = log(reported(40), reported(90), reported(60), reported(500, uuid="uuid-2"), reported(7, table="air.other"))
    assert state.reported_offset(TABLE, UUID) == 90
    assert state.reported_offset(TABLE, "uuid-2") == 500
    assert state.reported_offset("air.other", UUID) == 7
    assert state.reported_offset("air.other", "uuid-2") == 0


def test_a_report_of_a_control_topic_that_was_created_again_since_does_not_count() -> None:
    late, ours = reported(9, topic_id="topic-0"), reported(4, topic_id="topic-1")
    assert log(bound(), ours, late).reported_offset(TABLE, UUID) == 4
    assert log(late, ours, bound()).reported_offset(TABLE, UUID) == 4
    assert log(late, ours, checkpoint(3, control_topic_id="topic-1"), start=3).reported_offset(TABLE, UUID) == 4


def test_the_highest_commit_complete_counts_not_the_last() -> None:
    def done(through_offset: int) -> CommitComplete:
        return CommitComplete(
            pipeline_id=PIPELINE_ID,
            commit_id="c",
            through_offset=through_offset,
            tables_behind=(),
            valid_through_ms=None,
        )

    assert log(done(4), done(9), done(6)).committed_through == 9


def test_no_table_takes_in_events_past_one_whose_batch_is_not_complete() -> None:
    state = log(written("b1"), complete("b1"), written("b2"), written("b2", "air.other"))
    assert state.limit == 2
    assert lacking(state, 0) == [0]


def test_the_limit_is_that_of_the_earliest_incomplete_batch() -> None:
    state = log(written("b1"), written("b2"), complete("b2"))
    assert state.limit == 0
    assert lacking(state, 0) == []


def test_a_batch_counts_once_its_data_complete_is_visible() -> None:
    state = log(written("b1"), written("b1", "air.other"))
    SINK.apply(state, 2, complete("b1"))
    assert state.limit == 3
    assert lacking(state, 0) == [0]
    assert lacking(state, 0, "air.other") == [1]


def test_what_lies_below_the_stored_offset_is_in_the_table_already() -> None:
    state = log(written("b1"), complete("b1"), written("b2"), complete("b2"))
    assert lacking(state, 2) == [2]
    assert lacking(state, 3) == []


def test_events_for_another_incarnation_of_a_table_are_not_for_this_one() -> None:
    state = log(written("b1", uuid="uuid-0"), written("b1"), complete("b1"))
    assert lacking(state, 0) == [1]


def test_events_that_resolve_a_finding_are_not_part_of_an_ordinary_commit() -> None:
    state = log(written("b1"), complete("b1"), written("r1", resolves=RESOLVES), complete("r1", kind="range"))
    assert lacking(state, 0) == [0]


def test_an_event_for_another_incarnation_is_found_from_the_given_offset_on() -> None:
    state = log(written("b1", uuid="uuid-0"), complete("b1"), written("b2"), complete("b2"))
    found = state.for_other_uuid(TABLE, UUID, 0)
    assert found is not None
    assert (found.offset, found.event.table_uuid) == (0, "uuid-0")
    assert state.for_other_uuid(TABLE, UUID, 1) is None
    assert state.for_other_uuid("air.other", UUID, 0) is None


def test_a_range_job_does_not_speak_of_positions() -> None:
    state = log(complete("b1", {TOPIC: (10, 20)}), complete("r1", {TOPIC: (1, 2)}, kind="range"))
    assert state.positions() == {at(0): 10, at(1): 20}
    assert state.batches["r1"].kind == "range"


def test_the_bootstrap_is_the_first_publish_and_there_is_none_before_it() -> None:
    assert log(bound()).last_publish is None
    assert log(bound()).positions() is None
    state = log(bound(), complete("boot", {TOPIC: (3, NOWHERE, 0)}, kind="bootstrap", tables=()))
    assert state.positions() == {at(0): 3, at(2): 0}


def test_the_last_publish_says_the_positions_and_every_batch_stays_known() -> None:
    state = log(complete("b1", {TOPIC: (10,)}), complete("b2", {TOPIC: (25,)}, predecessor="b1"))
    assert state.positions() == {at(0): 25}
    assert {batch: seen.offset for batch, seen in state.batches.items()} == {"b1": 0, "b2": 1}
    assert state.batches["b2"].predecessor == "b1"


def test_the_tables_are_those_with_files_or_reports() -> None:
    assert log(written("b1", "air.b"), reported(3, table="air.a"), complete("b1")).tables == ["air.a", "air.b"]


def test_a_pause_lasts_until_it_is_resumed_by_anybody() -> None:
    first, second = (Paused(pipeline_id=PIPELINE_ID, by=by, reason="migration") for by in ("ana", "bo"))
    assert log(first).paused == first
    assert log(first, Resumed(pipeline_id=PIPELINE_ID, by="bo")).paused is None
    assert log(first, Resumed(pipeline_id=PIPELINE_ID, by="bo"), second).paused == second


def outstanding(state: CommitState) -> list[str]:
    return [logged.event.batch_id for logged in state.outstanding()]


def test_a_started_and_an_abandoned_batch_are_for_people_only() -> None:
    state = log(complete("b1"), started("b9", "b1"), BatchAbandoned(pipeline_id=PIPELINE_ID, batch_id="b9"))
    assert state.started["b9"].event.batch_id == "b9"
    assert "b9" not in state.batches
    assert state.limit == 3


def test_outstanding_are_batches_that_continue_the_last_publish_until_they_are_published_or_given_up() -> None:
    state = log(complete("b1"), started("b2", "b1"), started("b3", "b1"))
    assert outstanding(state) == ["b2", "b3"]
    SINK.apply(state, 3, BatchAbandoned(pipeline_id=PIPELINE_ID, batch_id="b2"))
    assert outstanding(state) == ["b3"]
    SINK.apply(state, 4, started("b4", "b1+mark"))
    assert outstanding(state) == ["b3", "b4"]
    SINK.apply(state, 5, complete("b4", predecessor="b1+mark"))
    assert outstanding(state) == []
    assert outstanding(log(started("b2", ""))) == []


def test_a_log_that_is_read_again_forgets_what_was_read() -> None:
    state = log(bound(), written("b1"), complete("b1"), reported(3), started("b2", "b1"))
    state.restart(4)
    assert state == log(start=4)


def test_vtts_is_the_lowest_over_the_partitions() -> None:
    assert log(through("b1", 500, 300, 400)).valid_through_ms(1) == 300


def test_vtts_of_a_table_counts_only_the_batches_it_has() -> None:
    state = log(through("b1", 100), through("b2", 200))
    assert [state.valid_through_ms(up_to) for up_to in (0, 1, 2)] == [None, 100, 200]


def test_vtts_is_unknown_before_the_first_publish_and_after_the_bootstrap() -> None:
    assert log(bound()).valid_through_ms(1) is None
    assert log(complete("boot", {TOPIC: (0, 0)}, kind="bootstrap")).valid_through_ms(1) is None


def test_a_partition_with_records_waiting_and_none_read_allows_no_promise() -> None:
    state = log(through("b1", 500, UNREAD))
    assert state.valid_through_ms(1) is None
    SINK.apply(state, 1, through("b2", 500, 450))
    assert state.valid_through_ms(2) == 450


def test_a_partition_that_has_never_had_a_record_does_not_hold_the_promise_back() -> None:
    assert log(through("b1", 500, NOWHERE)).valid_through_ms(1) == 500


def test_an_idle_partition_keeps_what_it_was_read_through() -> None:
    assert log(through("b1", 500, 300), through("b2", 900, NOWHERE)).valid_through_ms(2) == 300


def test_a_partitions_promise_does_not_go_back_with_an_older_timestamp() -> None:
    assert log(through("b1", 500), through("b2", 400)).valid_through_ms(2) == 500


@pytest.mark.parametrize("first_seen", [UNREAD, 100])
def test_vtts_does_not_go_back_when_a_partition_appears(first_seen: int) -> None:
    state = log(through("b1", 500), through("b2", 600, first_seen), through("b3", 700, 650))
    assert [state.valid_through_ms(up_to) for up_to in (1, 2, 3)] == [500, 500, 650]


def test_a_topic_taken_out_of_the_pipeline_does_not_hold_vtts_back_for_ever() -> None:
    both = complete("b1", {"a": (1,), "b": (1,)}, through_ms={"a": (500,), "b": (300,)})
    one = complete("b2", {"a": (9,)}, through_ms={"a": (900,)})
    assert log(both, one).valid_through_ms(2) == 900


def test_a_range_job_leaves_vtts_alone() -> None:
    ranged = complete("r1", {TOPIC: (1,)}, kind="range", through_ms={TOPIC: (900,)})
    assert log(through("b1", 500), ranged).valid_through_ms(2) == 500


def test_only_the_same_pipeline_is_bound_anew() -> None:
    other = bound(pipeline_id="second first run", fingerprint="lake-2")
    moved = bound(fingerprint="lake-3")
    first = bound()
    assert log(first, other).bound == first
    state = log(first, other, moved)
    assert state.bound
    assert (state.bound.pipeline_id, state.bound.fingerprint) == (PIPELINE_ID, "lake-3")


def test_an_instant_counts_once_it_is_published_and_the_latest_stays() -> None:
    events = [started("b1", "b0"), replace(complete("b1"), instant_ms=9), replace(complete("r1", {}), instant_ms=6)]
    states = [log(*events[:number]) for number in (1, 2, 3)]
    assert [state.instant_ms for state in states] == [0, 9, 9]

"""Which range job resolves a finding, and when it is dropped."""

from __future__ import annotations

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Event
from calve.sink_core.sink.range_jobs.lost import losses
from calve.sink_core.tables.history.resolving import Base, base_of, resolution
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.range_parts import Resolves
from tests.codes import raises
from tests.unit.iceberg.commit.build import own, snapshot, view
from tests.unit.tables.log.build import complete, log, reported, written

FINDING = "table-rolled-back"
ROLLED_BACK = view(snapshot(1, None, own(2)), snapshot(2, 1, own(4)), head=1, tag=2)
NAMED = Resolves(finding=FINDING, tagged_snapshot_id=2, base_snapshot_id=1, covers_offset=4)


def job(names: Resolves = NAMED, batch_id: str = "r1", uuid: str = ROLLED_BACK.uuid) -> list[Event]:
    return [written(batch_id, uuid=uuid, resolves=names), complete(batch_id, {}, kind="range")]


def batch(batch_id: str, uuid: str = ROLLED_BACK.uuid) -> list[Event]:
    return [written(batch_id, uuid=uuid), complete(batch_id)]


BEFORE = [*batch("b1"), *batch("b2")]


def taken(events: list[Event], table: TableView = ROLLED_BACK, finding: str = FINDING) -> tuple[list[str], int] | None:
    found = resolution(table, log(*BEFORE, *events), finding)
    return found and ([logged.event.batch_id for logged in found.events], found.stored_offset)


def test_the_job_comes_with_what_is_pending_up_to_it_and_nothing_later() -> None:
    assert taken([*batch("b3"), *job(), *batch("b4")]) == (["b3", "r1"], 7)


def test_the_newest_of_several_jobs_counts() -> None:
    assert taken([*job(), *batch("b3"), *job(batch_id="r2")]) == (["b3", "r2"], 9)


def test_a_job_is_dropped_if_another_incarnation_took_in_more_than_it_covers_though_its_events_were_trimmed() -> None:
    assert taken([reported(4, uuid="another"), *job()]) is not None
    assert taken([reported(5, uuid="another"), *job()]) is None


@pytest.mark.parametrize(("stored", "is_taken"), [(4, True), (9, False)])
def test_a_job_that_was_taken_in_once_is_dropped_if_what_came_with_it_may_be_trimmed(
    stored: int, is_taken: bool
) -> None:
    state = log(*job(), reported(stored), start=7)
    assert (resolution(ROLLED_BACK, state, FINDING) is not None) == is_taken


def test_a_base_of_a_control_topic_that_was_rebuilt_since_has_nothing_of_this_one() -> None:
    before = own(90, control_topic_id="topic-0")
    rolled_back = view(snapshot(1, None, before), snapshot(2, 1, own(4)), head=1, tag=2)
    assert base_of(rolled_back, log()) == Base(1, 0)


@pytest.mark.parametrize(
    "names",
    [
        Resolves(finding=FINDING, tagged_snapshot_id=3, base_snapshot_id=1, covers_offset=4),
        Resolves(finding=FINDING, tagged_snapshot_id=2, base_snapshot_id=None, covers_offset=4),
    ],
    ids=["another tag", "another base"],
)
def test_a_job_for_another_state_of_the_table_is_dropped(names: Resolves) -> None:
    assert taken(job(names)) is None


def test_a_job_for_another_incarnation_is_dropped() -> None:
    assert taken(job(uuid="other")) is None


def test_an_event_for_another_incarnation_in_between_keeps_the_finding() -> None:
    assert taken([*batch("b3", uuid="other"), *job()]) is None


def test_a_job_without_its_data_complete_is_not_there_yet() -> None:
    assert taken(job()[:1]) is None


def test_a_finding_that_reads_can_t_answer_is_not_resolved() -> None:
    assert taken(job(), finding="other-cluster") is None


def test_the_base_is_the_nearest_of_ours_and_a_copy_is_a_base_of_its_own() -> None:
    copied = view(
        snapshot(1, None, own(2)), snapshot(2, 1, own(4)), snapshot(3, 1), snapshot(4, 3, source_id=2), head=4, tag=2
    )
    assert base_of(copied, log()) == Base(4, 2)
    assert base_of(ROLLED_BACK, log()) == Base(1, 2)
    assert base_of(view(snapshot(1), head=1, tag=None), log()) == Base(None, 0)


def test_a_base_below_expired_snapshots_can_t_be_known() -> None:
    cut = view(snapshot(2, 1, own(4)), snapshot(4, 3), head=4, tag=2)
    rootless = view(snapshot(2, None, own(4)), snapshot(4, None), head=4, tag=2)
    assert base_of(cut, log()) is None
    assert base_of(rootless, log()) is None
    assert taken(job(), cut) is None
    with raises(Code.UNKNOWN_LOSS):
        losses(cut, log(*BEFORE))


def test_what_the_head_holds_by_a_copy_is_not_lost() -> None:
    one = {"batches": ("b1",), "counts": {"b1": 10}}
    two = {"batches": ("b2",), "counts": {"b2": 10}}
    picked = view(
        snapshot(1, None, own(2, **one)), snapshot(2, 1, own(4, **two)), snapshot(3, 1, source_id=2), head=3, tag=2
    )
    assert losses(picked, log(*BEFORE)).lost == frozenset()
    assert losses(ROLLED_BACK, log(*BEFORE)).lost == {"b2"}


def test_what_an_untagged_head_holds_of_a_table_that_was_told_of_can_t_be_known_once_all_of_ours_is_expired() -> None:
    cut = view(snapshot(4, 3), head=4, tag=None)
    assert base_of(cut, log(reported(3, uuid="another"))) == Base(None, 0)
    assert base_of(cut, log(reported(3))) is None

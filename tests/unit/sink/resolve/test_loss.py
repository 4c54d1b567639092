from __future__ import annotations

from collections.abc import Iterable

from calve.sink_core.control.events import Logged
from calve.sink_core.sink.resolve.loss import lost_by_recreation, lost_by_roll_back
from calve.sink_core.tables.log.events import DataWritten
from tests.unit.iceberg.commit.build import own, snapshot, view
from tests.unit.tables.log.build import TABLE, UUID, checkpoint, complete, log, reported, written

STATE = log(written("b1"), complete("b1"), written("b2"), complete("b2"), written("b3"), complete("b3"))
"""Batches at the control offsets 0, 2 and 4; each is complete one further."""


def batches(events: Iterable[Logged[DataWritten]]) -> list[str]:
    return [logged.event.batch_id for logged in events]


def test_a_roll_back_loses_the_batches_between_the_head_and_the_tag() -> None:
    rolled = view(
        snapshot(1, None, own(2, batches=("b1",))), snapshot(2, 1, own(6, batches=("b2", "b3"))), head=1, tag=2
    )
    loss = lost_by_roll_back(rolled, STATE)
    assert (loss.since, loss.stored, batches(loss.events), loss.unknown) == (2, 6, ["b2", "b3"], "")
    assert loss.given_up_with(rolled) == ((2, 6),)


def test_a_cherry_picked_copy_holds_what_its_source_says() -> None:
    first, second = snapshot(1, None, own(2, batches=("b1",))), snapshot(2, 1, own(4, batches=("b2",)))
    third = snapshot(3, 2, own(6, batches=("b3",)))
    picked = view(first, second, third, snapshot(4, 1, None, source_id=3), head=4, tag=3)
    assert batches(lost_by_roll_back(picked, STATE).events) == ["b2"]


def test_a_tag_that_is_gone_loses_nothing_that_the_head_holds() -> None:
    untagged = view(snapshot(1, None, own(6, batches=("b1", "b2", "b3"))), head=1, tag=None)
    loss = lost_by_roll_back(untagged, STATE)
    assert (loss.since, loss.stored, loss.events) == (6, 6, ())
    assert loss.given_up_with(untagged) == ()


def test_a_report_tells_what_a_restored_catalog_forgot() -> None:
    state = log(written("b1"), complete("b1"), reported(2), written("b2"), complete("b2"), reported(5))
    restored = view(snapshot(1, None, own(2, batches=("b1",))), head=1, tag=1)
    loss = lost_by_roll_back(restored, state)
    assert (loss.stored, batches(loss.events)) == (5, ["b2"])


def test_what_was_given_up_before_is_not_lost_again() -> None:
    rolled = view(
        snapshot(1, None, own(2, batches=("b1",))),
        snapshot(2, 1, own(6, batches=("b3",), given_up=((2, 4),))),
        head=1,
        tag=2,
    )
    assert batches(lost_by_roll_back(rolled, STATE).events) == ["b3"]


def test_behind_expired_snapshots_nobody_knows_what_the_head_holds() -> None:
    cut = view(snapshot(3, 2), snapshot(2, 1, own(6)), head=3, tag=2)
    assert lost_by_roll_back(cut, STATE).unknown == ""
    gone = view(snapshot(3, 1), snapshot(2, 1, own(6)), head=3, tag=2)
    assert "expired" in lost_by_roll_back(gone, STATE).unknown


def test_behind_a_trim_nobody_knows_what_was_published() -> None:
    trimmed = log(written("b3"), complete("b3"), checkpoint(4), start=4)
    rolled = view(snapshot(1, None, own(2, batches=("b1",))), snapshot(2, 1, own(6)), head=1, tag=2)
    assert "trimmed" in lost_by_roll_back(rolled, trimmed).unknown
    near = view(snapshot(1, None, own(4, batches=("b1",))), snapshot(2, 1, own(6)), head=1, tag=2)
    assert lost_by_roll_back(near, trimmed).unknown == ""


def test_a_recreated_table_begins_behind_the_last_batch_for_the_old_one() -> None:
    loss = lost_by_recreation(view(head=None, tag=None, uuid="new"), STATE)
    assert (loss.stored, batches(loss.events), loss.kept) == (6, ["b1", "b2", "b3"], ())


def test_a_recreated_table_keeps_what_was_published_for_it_already() -> None:
    state = log(written("b1"), complete("b1"), written("b2", uuid="new"), complete("b2"), reported(5, uuid=UUID))
    loss = lost_by_recreation(view(head=None, tag=None, uuid="new"), state)
    assert (loss.stored, batches(loss.events), batches(loss.kept)) == (5, ["b1"], ["b2"])
    assert state.tables == [TABLE]


def test_offsets_of_a_control_topic_that_was_rebuilt_since_are_another_count() -> None:
    before, after = own(90, batches=("b0",), control_topic_id="topic-0"), own(4, batches=())
    rolled = view(snapshot(1, None, before), snapshot(2, 1, after), head=1, tag=None)
    loss = lost_by_roll_back(rolled, STATE)
    assert (loss.since, loss.stored, batches(loss.events)) == (0, 4, ["b1", "b2"])

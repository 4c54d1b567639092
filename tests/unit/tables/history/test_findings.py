"""Each way a table can contradict the log, and what lies just beside it and is no finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from calve.sink_core.finding import Finding
from calve.sink_core.tables.history.findings import AncestryCut, Identity, compare, dropped
from calve.sink_core.tables.history.view import SnapshotView, TableView
from calve.sink_core.tables.log.state import CommitState
from tests.codes import names
from tests.unit.iceberg.commit.build import NOW, own, snapshot, view
from tests.unit.tables.log.build import TABLE, UUID, checkpoint, complete, log, reported, written

FIRST, SECOND = written("b1"), written("b2")
LOG = log(FIRST, complete("b1"), SECOND, complete("b2"))
"""Two batches for the table; committed, they leave the stored offsets 2 and 4."""

OURS_1 = snapshot(2, 1, own(2, FIRST.event_id))
OURS_2 = snapshot(3, 2, own(4, SECOND.event_id))
BASE = snapshot(1)
CLEAN = view(BASE, OURS_1, OURS_2, head=3, tag=3)
ALL = "accept|refill|recommit"
LOST = "recommit|refill|accept"

Values = Sequence[object]


def with_reports(*stored: int, uuid: str = UUID) -> CommitState:
    """The two batches and then `COMMIT_TO_TABLE`s."""
    return log(FIRST, complete("b1"), SECOND, complete("b2"), *(reported(offset, uuid=uuid) for offset in stored))


def chain(*snapshots: SnapshotView, tag: int | None) -> TableView:
    """Each snapshot the parent of the next, the last the head."""
    linked = [replace(after, parent_id=before.snapshot_id) for before, after in pairwise(snapshots)]
    return view(replace(snapshots[0], parent_id=None), *linked, head=snapshots[-1].snapshot_id, tag=tag)


def assert_says(
    finding: Finding | AncestryCut | None,
    name: str,
    stored: Values,
    found: Values,
    choices: str,
    subject: str = TABLE,
) -> None:
    """The finding, and that its message holds both values and the command that answers it."""
    assert isinstance(finding, Finding)
    assert (finding.name, finding.subject) == (name, subject)
    message = str(finding.error("flights.yaml"))
    names(finding.stored, *stored)
    names(finding.found, *found)
    assert finding.stored in message
    assert finding.found in message
    answer = f"calve resolve flights.yaml {name} --subject {subject} --choose {choices}"
    assert (answer if choices else finding.kind.hint) in message


@pytest.mark.parametrize(
    "clean",
    [
        pytest.param(CLEAN, id="head is ours"),
        pytest.param(chain(BASE, OURS_1, OURS_2, snapshot(4), tag=3), id="others have appended since"),
        pytest.param(chain(BASE, OURS_1, tag=2), id="the second batch is still to come"),
        pytest.param(view(head=None, tag=None), id="never written to"),
        pytest.param(view(BASE, head=1, tag=None), id="written to by others only"),
        pytest.param(view(BASE, head=1, tag=1), id="others made a tag of that name before our first commit"),
        pytest.param(view(OURS_2, head=3, tag=3), id="what lies below the tag was expired"),
    ],
)
def test_a_table_that_agrees_with_the_log_is_committed_to(clean: TableView) -> None:
    assert compare(clean, LOG, NOW) is None


def test_a_table_that_another_coordinator_has_reported_agrees_too() -> None:
    assert compare(CLEAN, with_reports(2, 4), NOW) is None
    assert compare(chain(BASE, OURS_1, tag=2), with_reports(2), NOW) is None


@pytest.mark.parametrize("head", [1, 2])
def test_a_head_below_the_tag_was_rolled_back(head: int) -> None:
    finding = compare(replace(CLEAN, head=head), LOG, NOW)
    assert_says(finding, "table-rolled-back", [3, 4], [head], ALL)


def test_a_roll_back_hidden_under_a_foreign_append_is_seen() -> None:
    rolled_back = view(BASE, OURS_1, OURS_2, snapshot(4, 2), head=4, tag=3)
    assert_says(compare(rolled_back, LOG, NOW), "table-rolled-back", [3], [4], ALL)


def test_a_branch_that_was_emptied_was_rolled_back() -> None:
    assert_says(compare(replace(CLEAN, head=None), LOG, NOW), "table-rolled-back", [3], [None], ALL)


def test_a_tagged_snapshot_that_was_cherry_picked_is_in_the_table() -> None:
    picked = view(BASE, OURS_1, OURS_2, snapshot(4, 2), snapshot(5, 4, source_id=3), head=5, tag=3)
    assert compare(picked, LOG, NOW) is None


def test_a_cherry_picked_copy_does_not_bring_back_the_snapshots_below_it() -> None:
    lost_one = view(BASE, OURS_1, OURS_2, snapshot(5, 1, source_id=3), head=5, tag=3)
    assert_says(compare(lost_one, LOG, NOW), "table-rolled-back", [3], [2], ALL)


def test_every_snapshot_cherry_picked_in_turn_brings_all_back() -> None:
    both = view(BASE, OURS_1, OURS_2, snapshot(5, 1, source_id=2), snapshot(6, 5, source_id=3), head=6, tag=3)
    assert compare(both, LOG, NOW) is None


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(view(OURS_2, snapshot(9, 8), head=9, tag=3), id="expired between tag and head"),
        pytest.param(view(OURS_2, snapshot(9), head=9, tag=3), id="expired by pyiceberg, which leaves no parent"),
        pytest.param(view(OURS_2, snapshot(9, 8, source_id=3), head=9, tag=3), id="a copy, expired below"),
    ],
)
def test_an_ancestry_that_ends_above_the_tag_is_left_to_the_files(cut: TableView) -> None:
    found = compare(cut, LOG, NOW)
    assert isinstance(found, AncestryCut)
    assert_says(found.finding, "table-rolled-back", [3], [], ALL)


def test_a_tag_that_was_removed_is_missed_though_nobody_reported_the_commit() -> None:
    assert_says(compare(replace(CLEAN, tag=None), LOG, NOW), "tag-removed", [3], [], LOST)


def test_a_tag_that_was_removed_is_missed_though_the_branch_was_rolled_back_as_well() -> None:
    assert_says(compare(replace(CLEAN, head=1, tag=None), LOG, NOW), "tag-removed", [3], [], LOST)


def test_a_tag_that_was_moved_to_a_snapshot_of_others_is_missed() -> None:
    moved = chain(BASE, OURS_1, OURS_2, snapshot(4), tag=4)
    assert_says(compare(moved, LOG, NOW), "tag-removed", [3], [], LOST)


def test_a_tag_moved_back_to_an_older_snapshot_of_ours_does_not_double_the_later_ones() -> None:
    moved = replace(CLEAN, tag=2)
    assert compare(moved, with_reports(4), NOW) is None
    assert LOG.pending(TABLE, UUID, moved.stored_offset) == []


def test_a_table_restored_to_before_its_last_report_is_seen() -> None:
    restored = chain(BASE, OURS_1, tag=2)
    assert_says(compare(restored, with_reports(4), NOW), "table-restored", [4], [2], LOST)


def test_the_highest_report_counts_when_a_table_was_restored() -> None:
    restored = chain(BASE, OURS_1, tag=2)
    assert_says(compare(restored, with_reports(4, 2), NOW), "table-restored", [4], [2], LOST)


def test_a_table_restored_to_before_our_first_commit_is_seen() -> None:
    restored = view(BASE, head=1, tag=None)
    assert_says(compare(restored, with_reports(2), NOW), "table-restored", [2], [], LOST)


def test_a_table_with_another_uuid_than_its_events_was_recreated() -> None:
    recreated = view(head=None, tag=None, uuid="uuid-2")
    finding = compare(recreated, LOG, NOW)
    assert_says(finding, "table-recreated", ["uuid-1", "b1", 0], ["uuid-2"], "refill|accept")


def test_a_recreated_table_is_seen_by_its_reports_once_the_events_were_trimmed() -> None:
    trimmed = log(checkpoint(9, reported={TABLE: {UUID: 4}}), start=9)
    recreated = view(head=None, tag=None, uuid="uuid-2")
    assert_says(compare(recreated, trimmed, NOW), "table-recreated", ["uuid-1", 4], ["uuid-2"], "refill")


def test_a_recreated_table_that_took_in_the_events_for_the_old_one_is_resolved() -> None:
    resolved = view(snapshot(7, None, own(4)), head=7, tag=7, uuid="uuid-2")
    assert compare(resolved, with_reports(4), NOW) is None


def test_an_event_for_the_old_table_above_what_the_new_one_stores_is_a_finding() -> None:
    short = view(snapshot(7, None, own(2)), head=7, tag=7, uuid="uuid-2")
    assert_says(compare(short, LOG, NOW), "table-recreated", [2], ["uuid-2"], "refill|accept")


def test_a_recreated_table_without_tag_is_a_finding_though_a_batch_was_written_for_it_since() -> None:
    state = log(FIRST, complete("b1"), written("b2", uuid="uuid-2"), complete("b2"))
    recreated = view(BASE, head=1, tag=None, uuid="uuid-2")
    assert_says(compare(recreated, state, NOW), "table-recreated", ["uuid-1"], ["uuid-2"], "refill|accept")


def test_a_table_of_another_cluster_is_not_committed_to() -> None:
    finding = compare(CLEAN, LOG, Identity(NOW.control_topic_id, "cluster-2"))
    assert_says(finding, "other-cluster", ["cluster-1"], ["cluster-2"], "")


def test_a_table_whose_offsets_speak_of_another_control_topic_is_not_committed_to() -> None:
    finding = compare(CLEAN, LOG, Identity("topic-2", NOW.cluster_id))
    assert_says(finding, "control-topic-recreated", ["topic-1"], ["topic-2"], "rebuild")


def test_a_table_of_another_control_topic_is_not_taken_for_one_without_tag() -> None:
    finding = compare(replace(CLEAN, tag=None), LOG, Identity("topic-2", NOW.cluster_id))
    assert_says(finding, "control-topic-recreated", ["topic-1"], ["topic-2"], "rebuild")


def test_a_table_that_has_taken_in_more_than_the_log_holds_means_a_truncated_log() -> None:
    finding = compare(CLEAN, log(FIRST, complete("b1"), SECOND), NOW)
    assert_says(finding, "control-topic-truncated", [4], [3], "rebuild")


def test_a_log_that_has_other_events_at_the_same_offsets_is_seen_by_the_last_event_taken_in() -> None:
    rewritten = log(FIRST, complete("b1"), written("b2"), complete("b2"))
    finding = compare(CLEAN, rewritten, NOW)
    assert_says(finding, "control-topic-truncated", [SECOND.event_id], [], "rebuild")


def test_the_last_event_taken_in_may_have_been_trimmed() -> None:
    trimmed = log(checkpoint(4, reported={TABLE: {UUID: 4}}), start=4)
    assert compare(CLEAN, trimmed, NOW) is None


def test_a_trimmed_log_that_lacks_the_last_event_above_its_start_is_truncated() -> None:
    quiet = checkpoint(6, reported={TABLE: {UUID: 4}}, last_events={TABLE: (SECOND.event_id,)})
    assert compare(CLEAN, log(quiet, start=3), NOW) is None
    other = replace(quiet, last_events={TABLE: ("another",)})
    finding = compare(CLEAN, log(other, start=3), NOW)
    assert_says(finding, "control-topic-truncated", [SECOND.event_id], [], "rebuild")
    assert compare(CLEAN, log(other, start=4), NOW) is None


def test_the_last_event_may_be_named_by_any_checkpoint_left() -> None:
    first = checkpoint(6, last_events={TABLE: (SECOND.event_id,)})
    second = checkpoint(7, last_events={TABLE: ("earlier",)})
    for events in ((first, second), (second, first)):
        assert compare(CLEAN, log(*events, start=3), NOW) is None


def test_a_table_put_back_to_before_a_trim_is_seen_by_what_the_trim_found() -> None:
    trimmed = log(checkpoint(9, reported={TABLE: {UUID: 4}}), start=9)
    restored = chain(BASE, OURS_1, tag=2)
    assert_says(compare(restored, trimmed, NOW), "table-restored", [4], [2], LOST)


def test_a_table_gone_from_the_catalog_is_a_finding_if_the_log_speaks_of_it() -> None:
    assert_says(dropped(TABLE, LOG), "table-dropped", [UUID], [], "refill|accept")
    assert_says(dropped(TABLE, log(reported(4, uuid="uuid-9"))), "table-dropped", ["uuid-9"], [], "refill")
    assert dropped("air.other", LOG) is None

"""Each finding about a whole pipeline, and what lies just beside it and is none."""

from __future__ import annotations

from functools import partial

import pytest

from calve.sink_core.control import checks
from calve.sink_core.control.events import Event
from calve.sink_core.finding import Finding
from calve.sink_core.findings import OTHER_CATALOG
from calve.sink_core.offsets import Position
from tests.codes import names
from tests.unit.tables.log.build import TOPIC, at, bound, checkpoint, complete, log, positions

CONTROL = "calve.prod.flights.control"
AFTER_B1 = log(complete("b1", {TOPIC: (10, 20)}))
TOPICS = {TOPIC: "id-1"}
binding = partial(checks.binding, elsewhere=OTHER_CATALOG)


def assert_says(
    finding: Finding | None, name: str, subject: str, stored: str | None, found: object, choices: str
) -> None:
    """The finding, and that its message holds both values and the command that answers it."""
    assert finding is not None
    assert (finding.name, finding.subject) == (name, subject)
    message = str(finding.error("flights.yaml"))
    names(finding.stored, *([] if stored is None else [stored]))
    names(finding.found, found)
    assert finding.stored in message
    assert finding.found in message
    answer = f"calve resolve flights.yaml {name} --subject {subject} --choose {choices}"
    assert (answer if choices else finding.kind.hint) in message


def test_a_host_with_the_same_binding_may_go_on() -> None:
    assert binding(bound(), bound(pipeline_id="made by this run")) is None


@pytest.mark.parametrize(
    ("field", "name", "choices"),
    [
        ("pipeline", "renamed-pipeline", ""),
        ("deployment", "renamed-pipeline", ""),
        ("fingerprint", "other-catalog", "move"),
        ("cluster_id", "other-cluster", ""),
        ("control_topic_id", "control-topic-recreated", "rebuild"),
    ],
)
def test_a_host_bound_to_something_else_must_stop(field: str, name: str, choices: str) -> None:
    mine = bound(**{field: "mine"})
    assert_says(binding(bound(**{field: "theirs"}), mine), name, mine.pipeline, "theirs", "mine", choices)


def test_a_log_that_starts_at_its_beginning_is_whole() -> None:
    assert checks.truncated(log(bound()), CONTROL) is None
    assert checks.truncated(log(), CONTROL) is None


def test_a_log_trimmed_up_to_its_checkpoint_is_whole() -> None:
    assert checks.truncated(log(checkpoint(5), start=5), CONTROL) is None
    assert checks.truncated(log(checkpoint(6), start=5), CONTROL) is None


def test_a_log_that_begins_above_what_a_trim_deleted_is_truncated() -> None:
    kept = checkpoint(6, delete_below=3)
    assert checks.truncated(log(kept, start=3), CONTROL) is None
    finding = checks.truncated(log(kept, start=4), CONTROL)
    assert finding is not None
    assert finding.name == "control-topic-truncated"
    names(finding.stored, 3)
    names(finding.found, 4)


def test_of_two_trims_at_once_either_may_have_deleted() -> None:
    assert checks.truncated(log(checkpoint(6, delete_below=5), checkpoint(6, delete_below=3), start=5), CONTROL) is None


@pytest.mark.parametrize(
    "events", [(), (checkpoint(4),), (complete("b7"),)], ids=["empty", "gap of one", "no checkpoint"]
)
def test_a_log_whose_start_no_checkpoint_stands_for_is_truncated(events: tuple[Event, ...]) -> None:
    finding = checks.truncated(log(*events, start=5), CONTROL)
    assert_says(finding, "control-topic-truncated", CONTROL, "0", 5, "rebuild")


def test_positions_of_a_publish_that_the_log_does_not_know_mean_another_control_topic() -> None:
    finding = checks.lost_log(positions("b1", 10, 20), log(bound()), CONTROL)
    assert_says(finding, "control-topic-recreated", CONTROL, "b1", "DATA_COMPLETE", "rebuild")


def test_a_log_that_knows_a_publish_is_not_lost() -> None:
    assert checks.lost_log(positions("b1", 10, 20), AFTER_B1, CONTROL) is None
    assert checks.lost_log(positions("b1", 10, 20), log(checkpoint(5), start=5), CONTROL) is None


def test_a_group_that_no_publish_has_touched_lost_nothing() -> None:
    assert checks.lost_log({}, log(), CONTROL) is None
    assert checks.lost_log({at(0): Position(10, "")}, log(), CONTROL) is None


def test_a_source_topic_with_another_uuid_than_at_the_last_publish_was_recreated() -> None:
    finding = checks.topic_recreated({TOPIC: "id-2"}, AFTER_B1)
    assert_says(finding, "topic-recreated", TOPIC, "id-1", "id-2", "restart")
    trimmed = log(checkpoint(5), start=5)
    assert_says(checks.topic_recreated({TOPIC: "id-2"}, trimmed), "topic-recreated", TOPIC, "id-1", "id-2", "restart")


def test_the_same_topic_and_a_topic_that_is_new_to_the_pipeline_are_fine() -> None:
    assert checks.topic_recreated({TOPIC: "id-1", "new": "id-9"}, AFTER_B1) is None
    assert checks.topic_recreated({TOPIC: "id-2"}, log()) is None


def test_a_topic_that_was_put_back_must_have_its_position_unless_it_was_created_anew() -> None:
    state = log(complete("b0", {"old": (7,)}, topic_ids={"old": "id-7"}), complete("b1", {TOPIC: (10, 20)}))
    trimmed = log(
        checkpoint(5, positions={TOPIC: (10, 20)}, former_positions={"old": (7,)}, former_topic_ids={"old": "id-7"}),
        start=5,
    )
    found = positions("b1", 10, 20)
    for known in (state, trimmed):
        missing = checks.positions(found, {**TOPICS, "old": "id-7"}, known)
        assert_says(missing, "positions-missing", "old", "old[0] at 7", 1, "restore")
        assert checks.positions(found | {at(0, "old"): Position(7, "b0")}, {**TOPICS, "old": "id-7"}, known) is None
        assert checks.positions(found, {**TOPICS, "old": "id-8"}, known) is None
        assert known.kept({"old": "id-7", "new": "id-9"}) == {at(0, "old"): 7}
        assert known.kept({"old": "id-8"}) == {}


def test_a_topic_recreated_between_plan_and_publish_is_seen() -> None:
    assert checks.topic_changed({TOPIC: "id-1"}, {TOPIC: "id-1"}) is None
    finding = checks.topic_changed({TOPIC: "id-1"}, {TOPIC: "id-2"})
    assert_says(finding, "topic-recreated", TOPIC, "id-1", "id-2", "restart")


def test_positions_as_the_last_publish_left_them_are_fine() -> None:
    assert checks.positions(positions("b1", 10, 20), TOPICS, AFTER_B1) is None
    assert checks.positions(positions("b1+mark", 10, 20), TOPICS, AFTER_B1) is None


def test_before_bootstrap_any_position_is_fine() -> None:
    assert checks.positions({}, TOPICS, log(bound())) is None
    assert checks.positions(positions("", 3), TOPICS, log(bound())) is None


def test_a_new_partition_and_a_topic_taken_out_of_the_pipeline_are_fine() -> None:
    assert checks.positions(positions("b1", 10, 20, 7), TOPICS, AFTER_B1) is None
    two = log(complete("b1", {TOPIC: (10,), "gone": (4,)}))
    assert checks.positions(positions("b1", 10), TOPICS, two) is None


def test_positions_that_the_group_has_lost_are_missing() -> None:
    finding = checks.positions(positions("b1", 10), TOPICS, AFTER_B1)
    assert_says(finding, "positions-missing", TOPIC, f"{at(1)} at 20", 1, "restore")
    finding = checks.positions({}, TOPICS, AFTER_B1)
    assert_says(finding, "positions-missing", TOPIC, f"{at(0)} at 10", 2, "restore")


def test_a_position_moved_back_can_only_be_restored() -> None:
    finding = checks.positions(positions("b1", 10, 19), TOPICS, AFTER_B1)
    assert_says(finding, "positions-changed", TOPIC, f"{at(1)} at 20", 19, "restore")
    assert finding is not None
    assert finding.choices == ("restore",)


def test_a_position_moved_forward_may_also_be_accepted() -> None:
    finding = checks.positions(positions("b1", 11, 20), TOPICS, AFTER_B1)
    assert_says(finding, "positions-changed", TOPIC, f"{at(0)} at 10", 11, "restore|accept")


def test_positions_of_which_one_moved_back_cannot_be_accepted() -> None:
    finding = checks.positions(positions("b1", 11, 19), TOPICS, AFTER_B1)
    assert finding is not None
    assert finding.choices == ("restore",)


def test_positions_that_carry_two_batch_ids_were_changed_by_others() -> None:
    found = {at(0): Position(10, ""), at(1): Position(20, "b1")}
    finding = checks.positions(found, TOPICS, AFTER_B1)
    assert_says(finding, "positions-changed", TOPIC, None, "b1", "restore")


def test_positions_of_which_only_some_carry_the_mark_of_a_giving_up_were_changed_by_others() -> None:
    found = {at(0): Position(10, "b1"), at(1): Position(20, "b1+mark")}
    finding = checks.positions(found, TOPICS, AFTER_B1)
    assert_says(finding, "positions-changed", TOPIC, None, "b1, b1+mark", "restore")


def test_positions_with_a_mark_name_the_publish_that_a_recreated_log_lacks() -> None:
    finding = checks.lost_log(positions("b1+mark", 10, 20), log(bound()), CONTROL)
    assert finding is not None
    assert finding.name == "control-topic-recreated"
    names(finding.stored, "b1")


def test_a_checkpoint_says_where_the_positions_must_be() -> None:
    trimmed = log(checkpoint(5, positions={TOPIC: (10, 20)}), start=5)
    assert checks.positions(positions("b1", 10, 20), TOPICS, trimmed) is None
    finding = checks.positions(positions("b1", 10, 21), TOPICS, trimmed)
    assert_says(finding, "positions-changed", TOPIC, f"{at(1)} at 20", 21, "restore|accept")


def test_positions_from_the_log_start_to_its_end_are_fine() -> None:
    starts, ends = {at(0): 10, at(1): 0}, {at(0): 30, at(1): 20}
    assert checks.against_log(positions("b1", 10, 20), starts, ends) is None


def test_a_position_beyond_the_end_of_its_partition_can_only_be_restored() -> None:
    finding = checks.against_log(positions("b1", 31), {at(0): 0}, {at(0): 30})
    assert_says(finding, "positions-beyond-end", TOPIC, f"{at(0)} at 31", 30, "restore")


def test_records_that_retention_removed_unread_are_counted() -> None:
    finding = checks.against_log(positions("b1", 10), {at(0): 14}, {at(0): 30})
    assert_says(finding, "records-lost-to-retention", TOPIC, f"{at(0)} at 10", 14, "skip")
    assert finding is not None
    names(finding.found, 4)


def test_a_position_of_a_partition_that_is_not_read_is_left_alone() -> None:
    assert checks.against_log(positions("b1", 99), {}, {}) is None

"""What a publisher does after its fence: publish once, and only what continues the last publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.events import BatchAbandoned
from calve.sink_core.offsets import OffsetRange, Position, TopicPartition
from calve.sink_core.sink.loop.decision import decide
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.state import CommitState
from tests.codes import names
from tests.unit.tables.log.build import PIPELINE_ID, TOPIC, at, checkpoint, complete, log, positions, started

LAST = complete("b1", {TOPIC: (10, 20)})
AFTER_B1 = log(LAST)


def plan(*starts: int, predecessor: str = "b1", topic: str = TOPIC) -> BatchPlan:
    """Batch `b2` over the partitions 0, 1, … from `starts`, five offsets each."""
    ranges = tuple(OffsetRange(topic, partition, start, start + 5) for partition, start in enumerate(starts))
    return BatchPlan("b2", predecessor, ranges, (ranges,), {topic: "id-1"}, 1_000, 5_000)


def verdict(found: Mapping[TopicPartition, Position], state: CommitState = AFTER_B1, planned: BatchPlan | None = None):
    decision = decide(planned or plan(10, 20), found, state)
    assert decision.why
    return decision.verdict


def test_a_plan_that_continues_the_last_publish_is_published() -> None:
    assert verdict(positions("b1", 10, 20)) is Verdict.PUBLISH


def test_our_batch_in_the_log_means_that_an_earlier_try_landed() -> None:
    state = log(LAST, complete("b2", {TOPIC: (15, 25)}))
    assert verdict(positions("b2", 15, 25), state) is Verdict.ALREADY_PUBLISHED


def test_our_batch_in_the_log_counts_even_if_others_have_published_since() -> None:
    state = log(LAST, complete("b2", {TOPIC: (15, 25)}), complete("b3", {TOPIC: (30, 30)}))
    assert verdict(positions("b3", 30, 30), state) is Verdict.ALREADY_PUBLISHED


def test_our_id_in_the_positions_means_that_an_earlier_try_landed() -> None:
    assert verdict(positions("b2", 15, 25)) is Verdict.ALREADY_PUBLISHED


def test_a_batch_published_by_another_run_makes_the_plan_stale_and_is_named() -> None:
    decision = decide(plan(10, 20), positions("b9", 15, 25), log(LAST, complete("b9", {TOPIC: (15, 25)})))
    assert decision.verdict is Verdict.STALE
    names(decision.why, "b9", "b2")


def test_outstanding_plans_are_stale_once_they_were_given_up_and_say_that_they_are_planned_again() -> None:
    decision = decide(plan(10, 20), positions("b1+mark", 10, 20), AFTER_B1)
    assert (decision.verdict, decision.given_up) == (Verdict.STALE, True)
    names(decision.why, "b2")


def test_a_plan_that_was_given_up_after_others_had_published_is_just_stale() -> None:
    later = log(LAST, complete("b9", {TOPIC: (15, 25)}))
    decision = decide(plan(10, 20), positions("b9+mark", 15, 25), later)
    assert (decision.verdict, decision.given_up) == (Verdict.STALE, False)
    names(decision.why, "b9")


def test_a_plan_made_after_the_giving_up_is_published() -> None:
    assert verdict(positions("b1+mark", 10, 20), planned=plan(10, 20, predecessor="b1+mark")) is Verdict.PUBLISH


def test_giving_up_again_makes_that_plan_stale_too() -> None:
    again = decide(plan(10, 20, predecessor="b1+mark"), positions("b1+other", 10, 20), AFTER_B1)
    assert (again.verdict, again.given_up) == (Verdict.STALE, True)


def test_our_id_in_positions_that_were_marked_since_means_that_an_earlier_try_landed() -> None:
    assert verdict(positions("b2+mark", 15, 25)) is Verdict.ALREADY_PUBLISHED


def test_a_position_of_another_batch_in_one_partition_is_enough_to_be_stale() -> None:
    assert verdict({at(0): Position(10, "b1"), at(1): Position(20, "b9")}) is Verdict.STALE


def test_a_position_that_is_not_where_the_plan_starts_makes_it_stale_with_both_values() -> None:
    decision = decide(plan(10, 20), positions("b1", 10, 19), AFTER_B1)
    assert decision.verdict is Verdict.STALE
    names(decision.why, at(1), 20, 19)


def test_a_partition_that_appeared_since_the_last_publish_starts_where_the_plan_starts() -> None:
    assert verdict(positions("b1", 10, 20), planned=plan(10, 20, 0)) is Verdict.PUBLISH


def test_a_partition_of_the_last_publish_whose_position_is_gone_makes_the_plan_stale() -> None:
    assert verdict(positions("b1", 10)) is Verdict.STALE


def test_a_group_that_lost_all_its_positions_makes_the_plan_stale() -> None:
    assert verdict({}) is Verdict.STALE


def test_a_plan_of_which_nothing_has_ever_been_published_is_stale() -> None:
    assert verdict(positions("b1", 10, 20), log()) is Verdict.STALE
    assert verdict({}, log(), plan(0, topic="other")) is Verdict.STALE


def test_a_topic_put_back_into_the_pipeline_keeps_its_old_position_and_metadata() -> None:
    again = OffsetRange("again", 0, 7, 9)
    planned = BatchPlan("b2", "b1", (*plan(10, 20).ranges, again), ((again,),), {}, 1_000, 5_000)
    assert verdict(positions("b1", 10, 20) | {again.at: Position(7, "a-year-ago")}, planned=planned) is Verdict.PUBLISH
    assert verdict(positions("b1", 10, 20) | {again.at: Position(8, "a-year-ago")}, planned=planned) is Verdict.STALE


NEW = plan(0, 3, topic="new")


def test_a_plan_of_new_topics_only_continues_the_last_batch_of_the_log() -> None:
    decision = decide(NEW, {at(1, "new"): Position(3, "a-year-ago")}, log(LAST, started("b2", "b1")))
    assert (decision.verdict, decision.given_up) == (Verdict.PUBLISH, False)
    assert decision.why


@pytest.mark.parametrize("since", [complete("b9", {"newer": (5,)}), complete("b9", {"new": (2, 5)})])
def test_such_a_plan_is_stale_when_others_have_published(since: DataComplete) -> None:
    decision = decide(NEW, {}, log(LAST, started("b2", "b1"), since))
    assert (decision.verdict, decision.given_up) == (Verdict.STALE, False)


def test_such_a_plan_is_stale_when_it_was_given_up_also_after_a_trim_of_both_events() -> None:
    abandoned = BatchAbandoned(pipeline_id=PIPELINE_ID, batch_id="b2")
    for state in (log(LAST, started("b2", "b1"), abandoned), log(checkpoint(5), start=5)):
        decision = decide(NEW, {}, state)
        assert (decision.verdict, decision.given_up) == (Verdict.STALE, True)
    assert decide(NEW, {}, log(LAST, started("b2", "b1"), replace(abandoned, batch_id="b3"))).verdict is Verdict.PUBLISH


def test_such_a_plan_does_not_pass_over_the_topics_of_the_last_publish() -> None:
    planned = BatchPlan("b2", "b1", (*NEW.ranges, *plan(10, 20).ranges), (), {}, 1_000, 5_000)
    assert verdict({}, log(LAST, started("b2", "b1")), planned) is Verdict.STALE


def test_positions_of_topics_outside_the_plan_do_not_matter() -> None:
    token = {at(0, "calve.prod.flights.control"): Position(3, "range-job")}
    assert verdict(positions("b1", 10, 20) | token) is Verdict.PUBLISH


def test_a_checkpoint_stands_for_the_last_publish() -> None:
    trimmed = log(checkpoint(5, positions={TOPIC: (10, 20)}), start=5)
    assert verdict(positions("b1", 10, 20), trimmed) is Verdict.PUBLISH
    assert verdict(positions("b9", 10, 20), trimmed) is Verdict.STALE


@given(
    found=st.dictionaries(
        st.builds(at, st.integers(0, 2)),
        st.builds(Position, st.integers(9, 21), st.sampled_from(["b1", "b2", "b9", "b1+mark"])),
    )
)
def test_published_is_only_what_continues_every_known_position(found: dict[TopicPartition, Position]) -> None:
    if verdict(found, planned=plan(10, 20, 0)) is Verdict.PUBLISH:
        assert {at(0), at(1)} <= found.keys()
        assert all(position.offset == {0: 10, 1: 20, 2: 0}[where.partition] for where, position in found.items())
        assert {found[at(0)].metadata, found[at(1)].metadata} == {"b1"}

"""Giving up what is in progress: it can never be published, nobody else's batch is touched, its records come once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from calve.orchestration.local.broker import Broker
from calve.sink_core.control import keep_alive as keeping
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.events import BatchAbandoned, Event
from calve.sink_core.control.keep_alive import keep_alive
from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.control.publisher import GivenUp
from calve.sink_core.control.rounds import Bounds, Progress
from calve.sink_core.errors import UnknownOutcome
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import DataComplete, StartCommit
from tests.pipelines import Died, Flow, reached
from tests.support import TIMEOUT_S, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline with one batch of ids 0 to 4, and 5 to 9 waiting."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(5))
    flow.run()
    flow.produce(range(5, 10))
    return flow


def abandon(flow: Flow) -> GivenUp:
    with flow.session() as session:
        session.bind()
        return session.publisher.give_up()


def keep(flow: Flow) -> TaskOutcome:
    with flow.session() as session:
        session.bind()
        return keep_alive(session)


def die_after_planning(flow: Flow) -> str:
    """What a killed run leaves; the id of its batch."""

    def die() -> None:
        raise Died

    with reached("plan.after-start-commit", die), pytest.raises(Died):
        flow.run()
    return flow.events(StartCommit)[-1].batch_id


def published(flow: Flow) -> list[DataComplete]:
    return [event for event in flow.events(DataComplete) if event.kind == "batch"]


def in_flight(flow: Flow) -> list[str]:
    with flow.session() as session:
        return [batch.batch_id for batch in status(session).in_flight]


def assert_proven(flow: Flow) -> None:
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.violations == ()


def test_positions_stay_and_still_say_which_publish_they_are_of(flow: Flow) -> None:
    dead, before = die_after_planning(flow), flow.positions()
    given = abandon(flow)
    after = flow.positions()
    assert given.batch_ids == (dead,)
    assert [event.batch_id for event in flow.events(BatchAbandoned)] == [dead]
    assert {at: (p.offset, p.batch_id) for at, p in after.items()} == {
        at: (p.offset, p.batch_id) for at, p in before.items()
    }
    assert len({position.metadata for position in after.values()}) == 1
    assert all(after[at].metadata.startswith(f"{p.metadata}+") for at, p in before.items())
    assert given.positions == before
    assert given.state.last_batch_id == published(flow)[-1].batch_id


def test_giving_up_again_replaces_the_mark_and_names_no_batch_twice(flow: Flow) -> None:
    die_after_planning(flow)
    abandon(flow)
    first = {position.metadata for position in flow.positions().values()}
    assert abandon(flow).batch_ids == ()
    second = {position.metadata for position in flow.positions().values()}
    assert first != second
    assert all(metadata.count("+") == 1 for metadata in second)
    assert len(flow.events(BatchAbandoned)) == 1
    flow.run()
    assert flow.ids() == list(range(10))
    assert_proven(flow)


@pytest.mark.parametrize(
    "place", ["plan.after-start-commit", "write.after-manifests", "publish.after-fence", "publish.after-events"]
)
def test_a_batch_that_was_given_up_is_planned_again_by_its_run_and_lands_once(flow: Flow, place: str) -> None:
    given: list[GivenUp] = []
    steps: list[Progress] = []
    with (
        flow.session() as session,
        reached(place, lambda: given.append(abandon(flow))),
    ):
        report = run_pipeline(session, on_progress=steps.append)
    first, second = report.batches
    assert (first.verdict, first.given_up, first.published) == (Verdict.STALE, True, False)
    assert (second.verdict, second.given_up) == (Verdict.PUBLISH, False)
    assert given[0].batch_ids == (first.batch_id,)
    assert report.ended == "caught up"
    assert first.why in [step.message for step in steps if step.phase == "plan"]
    assert [event.batch_id for event in published(flow)][1:] == [second.batch_id]
    assert flow.ids() == list(range(10))
    assert in_flight(flow) == []
    assert_proven(flow)


def test_a_batch_is_planned_again_once_for_each_time_it_is_given_up(flow: Flow) -> None:
    with reached("write.after-manifests", lambda: abandon(flow)):
        report = run_with(flow, Bounds(max_batches=1, max_duration_s=600, linger_s=0))
    assert [batch.given_up for batch in report.batches] == [True, False]
    flow.produce(range(10, 12))
    left = [3]

    def give_up_three_times(step: Progress) -> None:
        if step.phase == "publish" and left[0]:
            left[0] -= 1
            abandon(flow)

    with flow.session() as session:
        report = run_pipeline(session, on_progress=give_up_three_times)
    assert [batch.given_up for batch in report.batches] == [True, True, True, False]
    assert flow.ids() == list(range(12))
    assert_proven(flow)


def run_with(flow: Flow, bounds: Bounds) -> RunReport:
    with flow.session() as session:
        return run_pipeline(session, bounds=bounds)


def test_a_batch_that_another_run_published_after_the_giving_up_ends_the_run_as_ever(flow: Flow) -> None:
    def give_up_and_run() -> None:
        abandon(flow)
        flow.run()

    with reached("write.after-manifests", give_up_and_run):
        report = flow.run()
    assert [(batch.verdict, batch.given_up) for batch in report.batches] == [(Verdict.STALE, False)]
    assert report.batches[0].why in report.ended
    assert flow.ids() == list(range(10))


def test_a_batch_whose_reply_was_lost_and_that_was_given_up_then_is_found_published(flow: Flow) -> None:
    given: list[GivenUp] = []

    def give_up_and_lose_the_reply() -> None:
        given.append(abandon(flow))
        raise UnknownOutcome("no answer to commit_transaction")

    with reached("publish.after-commit", give_up_and_lose_the_reply):
        report = flow.run()
    [batch] = report.batches
    assert batch.verdict is Verdict.ALREADY_PUBLISHED
    assert given[0].batch_ids == ()
    assert batch.batch_id in given[0].state.batches
    assert {position.batch_id for position in flow.positions().values()} == {batch.batch_id}
    assert flow.ids() == list(range(10))
    assert_proven(flow)


def test_giving_up_whose_own_reply_was_lost_is_done_again_and_names_its_batches(flow: Flow) -> None:
    def lose_the_reply() -> None:
        raise UnknownOutcome("no answer to commit_transaction")

    dead = die_after_planning(flow)
    with reached("publish.after-commit", lose_the_reply):
        given = abandon(flow)
    assert given.batch_ids == (dead,)
    assert len(flow.events(BatchAbandoned)) == 1


def test_giving_up_that_is_overtaken_by_a_publish_does_not_name_the_published_batch(flow: Flow) -> None:
    with reached("publish.after-events", flow.run):
        given = abandon(flow)
    assert given.batch_ids == ()
    assert flow.events(BatchAbandoned) == []
    assert given.state.last_batch_id == published(flow)[-1].batch_id
    assert flow.ids() == list(range(10))


def test_a_partition_published_first_while_giving_up_begins_gets_the_mark_too(flow: Flow) -> None:
    def publish_a_new_partition() -> None:
        for created in flow.admin.create_partitions([NewPartitions(flow.topic, 3)]).values():
            created.result(TIMEOUT_S)
        flow.produce(range(20, 23), partition=2)
        flow.run()

    with reached("publish.after-fence", publish_a_new_partition):
        abandon(flow)
    assert len(flow.positions()) == 3
    assert len({position.metadata for position in flow.positions().values()}) == 1
    flow.produce(range(23, 25))
    assert flow.run().ended == "caught up"
    assert flow.ids() == [*range(10), *range(20, 25)]


def test_topics_taken_out_keep_their_publish_and_the_token_gets_the_mark(flow: Flow, kafka_topic: TopicFactory) -> None:
    flow.run()
    old = next(iter(flow.positions().values())).metadata
    token = TopicPartition(flow.pipeline.control_topic, 0)
    other = flow.but(topics=(flow.topic, kafka_topic(1)))
    other.run()
    other.produce(range(30, 33), topic=other.topics[1])
    other.run()
    both = other.positions()
    alone = flow.but()
    alone.produce(range(40, 42))
    alone.run()
    with alone.session() as session:
        session.bind()
        producer_positions = {token: Position(7, "range-job")}
        session.publisher.publish(lambda _p, _s: _publish(), [], producer_positions)
        session.publisher.give_up()
        marked = session.group.positions([token])[token]
        assert (marked.offset, marked.batch_id) == (7, "range-job")
        assert "+" in marked.metadata
    gone = other.positions()[TopicPartition(other.topics[1], 0)]
    assert gone.batch_id == both[TopicPartition(other.topics[1], 0)].metadata != old
    assert "+" in gone.metadata
    other.produce(range(50, 52), topic=other.topics[1])
    assert other.run().ended == "caught up"
    assert other.ids() == [*range(10), *range(30, 33), *range(40, 42), *range(50, 52)]


def _publish() -> Any:
    from calve.sink_core.control.decision import Decision

    return Decision(Verdict.PUBLISH, "for the test")


def test_of_a_group_without_positions_nothing_is_written(tmp_path: Path, broker: Broker, kafka_topic: Any) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    given = abandon(flow)
    assert (given.positions, given.batch_ids) == ({}, ())
    assert flow.positions() == {}
    assert flow.events(BatchAbandoned) == []


def test_positions_that_others_changed_are_still_found_after_giving_up(flow: Flow) -> None:
    flow.move_positions({TopicPartition(flow.topic, 0): 3})
    abandon(flow)
    with flow.session() as session:
        assert "positions-changed" in status(session).findings[0]


def test_keeping_alive_after_giving_up_keeps_the_mark(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    abandon(flow)
    before = flow.positions()
    monkeypatch.setattr(keeping, "KEEP_ALIVE_AFTER_S", 0)
    time.sleep(0.01)
    kept = keep(flow)
    # Two partitions, and the token of range jobs.
    assert (kept.changed, kept.before, kept.after) == (True, {"offsets": 3}, {"offsets": 3})
    assert flow.positions() == before
    flow.run()
    assert flow.ids() == list(range(10))


def test_keeping_alive_leaves_a_pipeline_alone_that_has_just_published(flow: Flow) -> None:
    kept = keep(flow)
    assert (kept.changed, kept.subject) == (False, flow.pipeline.group)
    assert json.loads(json.dumps(kept.to_json()))["task"] == "keep_alive"


def test_keeping_alive_a_pipeline_that_never_published_does_nothing(
    tmp_path: Path, broker: Broker, kafka_topic: Any
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    kept = keep(flow)
    assert (kept.changed, kept.before) == (False, {})
    assert flow.name in kept.did
    assert flow.events(DataComplete) == []
    assert len(flow.events(Event)) == 1

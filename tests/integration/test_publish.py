"""Publishing on a real broker: whatever interleaves or breaks, each record is published once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import REQUIRED_CONFIG
from calve.sink_core.errors import UnknownOutcome
from calve.sink_core.failpoints import VARIABLE, FailpointReached
from calve.sink_core.kafka import clients
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests import support
from tests.codes import raises
from tests.pipelines import Died, Flow, reached
from tests.support import TIMEOUT_S, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def next_offsets(flow: Flow) -> list[int]:
    """The positions' offsets, in the order of the partitions."""
    return [position.offset for _, position in sorted(flow.positions().items())]


def batch_ids(flow: Flow) -> set[str]:
    """The batch ids that the positions carry."""
    return {position.batch_id for position in flow.positions().values()}


def published(flow: Flow) -> list[DataComplete]:
    return [event for event in flow.events(DataComplete) if event.kind == "batch"]


@pytest.mark.parametrize("place", ["after-fence", "after-begin", "after-events"])
def test_a_publisher_that_is_overtaken_in_its_transaction_leaves_nothing(flow: Flow, place: str) -> None:
    flow.run()
    flow.produce(range(10))
    with reached(f"publish.{place}", flow.run):
        report = flow.run()
    [late] = report.batches
    assert late.verdict is Verdict.STALE
    assert flow.ids() == list(range(10))
    [other] = batch_ids(flow)
    assert [event.batch_id for event in published(flow)] == [other] != [late.batch_id]
    assert other in report.ended
    assert late.batch_id not in {event.batch_id for event in flow.events(DataWritten)}


def test_offsets_in_an_unfinished_transaction_hold_nobody_up(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.run()
    flow.produce(range(10))
    monkeypatch.setenv(VARIABLE, "publish.after-offsets=raise")
    with pytest.raises(FailpointReached):
        flow.run()
    monkeypatch.delenv(VARIABLE)
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(10))
    assert len(published(flow)) == 1


def test_a_publisher_that_connects_ahead_fences_nobody_until_it_publishes(flow: Flow) -> None:
    flow.run()
    flow.produce(range(10))
    with flow.session() as ahead:
        ahead.bind()
        with reached("publish.after-fence", ahead.publisher.connect):
            [batch] = flow.run().batches
        assert batch.verdict is Verdict.PUBLISH
        flow.produce(range(10, 20))
        with reached("publish.after-events", ahead.publisher.keep_alive):
            [late] = flow.run().batches
        assert late.verdict is Verdict.PUBLISH, "fenced by the one that was connected, it looked and tried again"
    assert flow.ids() == list(range(20))
    assert len(published(flow)) == 2


def test_events_of_a_transaction_that_was_aborted_are_never_committed(flow: Flow) -> None:
    def die() -> None:
        raise Died

    flow.run()
    flow.produce(range(10))
    with reached("publish.after-events", die), pytest.raises(Died):
        flow.run()
    # As the next publisher does, which aborts what was left open.
    clients.transactional_producer(flow.pipeline.kafka.properties, flow.pipeline.transactional_id).init_transactions(
        TIMEOUT_S
    )
    flow.commit()
    assert flow.ids() == []
    flow.run()
    assert flow.ids() == list(range(10))


def test_a_batch_planned_before_another_was_published_is_stale(flow: Flow) -> None:
    flow.run()
    flow.produce(range(10))
    with reached("write.after-manifests", flow.run):
        report = flow.run()
    assert [batch.verdict for batch in report.batches] == [Verdict.STALE]
    assert flow.ids() == list(range(10))


def test_a_batch_whose_reply_was_lost_is_found_published(flow: Flow) -> None:
    def lose_the_reply() -> None:
        raise UnknownOutcome("no answer to commit_transaction")

    flow.run()
    flow.produce(range(10))
    with reached("publish.after-commit", lose_the_reply):
        report = flow.run()
    assert [batch.verdict for batch in report.batches] == [Verdict.ALREADY_PUBLISHED]
    assert report.ended == "caught up"
    assert flow.ids() == list(range(10))
    assert len(published(flow)) == 1


def test_keeping_alive_changes_neither_offsets_nor_metadata(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    before = flow.positions()
    with flow.session() as session:
        session.bind()
        assert session.publisher.keep_alive() == len(before) == 2
    assert flow.positions() == before
    flow.produce(range(3, 5))
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(5))


def test_keeping_alive_in_the_middle_of_a_publish_costs_it_only_a_try(flow: Flow) -> None:
    def keep_alive() -> None:
        with flow.session() as session:
            session.bind()
            session.publisher.keep_alive()

    flow.run()
    flow.produce(range(3))
    with reached("publish.after-events", keep_alive):
        report = flow.run()
    assert [batch.verdict for batch in report.batches] == [Verdict.PUBLISH]
    assert flow.ids() == list(range(3))
    assert len(published(flow)) == 1


def test_keeping_alive_puts_nothing_back_that_was_published_since_it_looked(flow: Flow) -> None:
    flow.run()
    flow.produce(range(3))
    with flow.session() as session, pytest.MonkeyPatch.context() as patch:
        session.bind()
        read, others = session.group.positions, [flow.run]

        def then_another_run(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
            found = read(partitions)
            if others:
                others.pop()()
            return found

        patch.setattr(session.group, "positions", then_another_run)
        session.publisher.keep_alive()
    assert next_offsets(flow) == [3, 0]
    flow.produce(range(3, 5))
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(5))


def test_keeping_alive_is_for_the_token_of_range_jobs_as_well(flow: Flow) -> None:
    flow.run()
    with flow.session() as session:
        session.bind()
        session.publisher.give_up()
        token = session.publisher.token
        with reached("publish.after-offsets", lambda: assert_undecided(flow, token)):
            session.publisher.keep_alive()


def assert_undecided(flow: Flow, at: TopicPartition) -> None:
    """A transaction that is open has an offset for it: nobody is told the one from before."""
    group = SourceGroup(flow.pipeline.kafka.properties, flow.pipeline.group)
    with closing(group), raises(Code.NO_BROKER, flow.pipeline.group):
        group.positions([at], timeout_s=1)


def test_positions_that_a_publish_is_about_to_move_are_waited_for(flow: Flow) -> None:
    flow.run()
    flow.produce(range(3))
    with reached("publish.after-offsets", lambda: assert_undecided(flow, TopicPartition(flow.topic, 0))):
        flow.run()
    assert next_offsets(flow) == [3, 0]
    assert flow.ids() == list(range(3))


def test_an_error_that_ends_no_more_than_the_transaction_costs_a_publish_only_a_try(flow: Flow) -> None:
    def fail() -> None:
        # What librdkafka says where a broker has lost what was sent to it before.
        code = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        raise KafkaException(KafkaError(code, "the transaction has failed", txn_requires_abort=True))

    flow.run()
    flow.produce(range(3))
    with reached("publish.after-events", fail):
        report = flow.run()
    assert [batch.verdict for batch in report.batches] == [Verdict.PUBLISH]
    assert flow.ids() == list(range(3))
    assert len(published(flow)) == 1


def test_idle_partitions_move_with_every_publish(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    first = batch_ids(flow)
    flow.produce(range(3, 5))
    flow.run()
    assert next_offsets(flow) == [5, 0]
    assert len(first) == len(batch_ids(flow)) == 1
    assert first != batch_ids(flow)


def test_a_partition_added_later_starts_at_its_beginning(flow: Flow) -> None:
    flow.produce(range(3))
    flow.but(extra={"source": {"start": "latest"}}).run()
    for created in flow.admin.create_partitions([NewPartitions(flow.topic, 3)]).values():
        created.result(TIMEOUT_S)
    flow.produce(range(10, 15), partition=2)
    flow.run()
    assert flow.ids() == list(range(10, 15))
    assert next_offsets(flow) == [3, 0, 5]


def test_bootstrap_by_two_at_once_happens_once(flow: Flow) -> None:
    flow.produce(range(5))
    with reached("publish.after-fence", flow.run):
        assert flow.run().ended == "caught up"
    assert [event.kind for event in flow.events(DataComplete)] == ["bootstrap", "batch"]
    assert flow.ids() == list(range(5))


def test_first_use_by_several_at_once_agrees_on_one_binding(flow: Flow) -> None:
    def bind(_: int) -> str:
        with flow.session() as session:
            return session.bind().pipeline_id

    with ThreadPoolExecutor(4) as pool:
        agreed = set(pool.map(bind, range(4)))
    assert agreed == {flow.events(PipelineBound)[0].pipeline_id}


def test_a_binding_that_lost_the_race_changes_nothing(flow: Flow) -> None:
    with flow.session() as session:
        first = session.bind()
        session.log.append(replace(first, event_id="late", pipeline_id="late"))
    with flow.session() as session:
        assert session.bind().pipeline_id == first.pipeline_id


def test_start_at_latest_reads_what_comes_from_then_on(flow: Flow) -> None:
    flow = flow.but(extra={"source": {"start": "latest"}})
    flow.produce(range(5))
    assert flow.run().batches == []
    flow.produce(range(5, 8))
    flow.run()
    assert flow.ids() == [5, 6, 7]


def test_start_at_a_timestamp_reads_from_the_first_record_of_that_time(flow: Flow) -> None:
    flow = flow.but(extra={"source": {"start": {"timestamp": datetime.fromtimestamp(2, UTC).isoformat()}}})
    values = [f'{{"id": {i}}}' for i in range(4)]
    support.produce(flow.bootstrap, flow.topic, values, timestamps=[1000, 1999, 2000, 3000])
    flow.run()
    assert flow.ids() == [2, 3]


def test_start_at_a_group_takes_its_offsets_over_once(flow: Flow) -> None:
    flow.produce(range(5))
    other = flow.but(name=f"{flow.name}_old")
    other.move_positions({TopicPartition(flow.topic, 0): 3})
    flow = flow.but(extra={"source": {"start": {"group": other.pipeline.group}}})
    flow.run()
    other.move_positions({TopicPartition(flow.topic, 0): 0})
    flow.run()
    assert flow.ids() == [3, 4]


def test_start_at_a_group_without_offsets_is_refused(flow: Flow) -> None:
    with raises(Code.START_GROUP, "nobody", "latest"):
        flow.but(extra={"source": {"start": {"group": "nobody"}}}).run()
    assert flow.positions() == {}


def test_positions_that_were_there_before_the_first_use_are_not_taken_over(flow: Flow) -> None:
    flow.produce(range(5))
    flow.move_positions({TopicPartition(flow.topic, 0): 3})
    with raises(Code.FOREIGN_POSITIONS, flow.pipeline.group):
        flow.run()
    assert flow.events(DataComplete) == []


def test_the_events_of_10_000_partitions_pass_a_topic_with_default_limits(flow: Flow) -> None:
    support.create_topic(flow.bootstrap, flow.pipeline.control_topic, 1, REQUIRED_CONFIG)
    flow.run()
    seeded = random.Random(1)
    offsets = tuple(seeded.randrange(2**40) for _ in range(10_000))
    [first] = flow.events(DataComplete)
    event = replace(first, event_id="big", batch_id="big", positions={"t": offsets}, through_ms={"t": offsets})
    at = TopicPartition(flow.topic, 0)
    with flow.session() as session:
        session.log.open(create=False)
        decided = Decision(Verdict.PUBLISH, "for the test")
        session.publisher.publish(lambda _positions, _state: decided, [event], {at: Position(0, "big")})
        assert session.log.refresh_to_end().last_publish == event


def test_a_plan_names_the_batch_it_continues(flow: Flow) -> None:
    flow.run()
    flow.produce(range(3))
    with flow.session() as session:
        session.bind()
        planner = Planner(session, max_tasks=2)
        planned = planner.next(planner.look())
    assert planned is not None
    assert {planned.plan.predecessor} == batch_ids(flow)

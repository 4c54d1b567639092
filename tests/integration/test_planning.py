"""Planning on a real broker: what others do between two looks leads to no false finding, and to no false promise."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

import calve.sink_core.sink.loop.planning
from calve.orchestration.local.broker import Broker
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.tables.log.state import CommitState
from tests import support
from tests.codes import finding, raises
from tests.pipelines import Flow
from tests.support import TIMEOUT_S, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic())


def test_what_is_appended_after_the_high_watermarks_is_no_older_than_the_plan_s_time(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"message.timestamp.type": "LogAppendTime"}))
    flow.run()
    flow.produce(range(5))
    real = calve.sink_core.sink.loop.planning.high_watermarks

    def then_a_record_comes(*asked: Any, **named: Any) -> dict[TopicPartition, int]:
        found = real(*asked, **named)
        flow.produce(range(5, 6))
        # What is wrongly taken for the plan's time from here on is later.
        time.sleep(0.01)
        return found

    monkeypatch.setattr(calve.sink_core.sink.loop.planning, "high_watermarks", then_a_record_comes)
    with flow.session() as session:
        session.bind()
        planner = Planner(session, max_tasks=1)
        planned = planner.next(planner.look())
    assert planned is not None
    assert [*planned.high_watermarks.values()] == [5]
    *_, late = support.messages(flow.bootstrap, flow.topic)
    assert planned.plan.broker_time_ms <= late.timestamp()[1], "VTTS would promise a record that the batch lacks"


def test_a_topic_taken_out_while_it_gets_a_partition_has_lost_no_position(
    flow: Flow, kafka_topic: TopicFactory
) -> None:
    other = kafka_topic()
    both = flow.but(topics=(flow.topic, other))
    both.run()

    def grow_and_take_out() -> None:
        both.admin.create_partitions([NewPartitions(other, 2)])[other].result(TIMEOUT_S)
        both.produce(range(5), partition=1, topic=other)
        both.run()
        flow.produce(range(5, 10))
        flow.run()

    with both.session() as session, pytest.MonkeyPatch.context() as patch:
        session.bind()
        # Between a look at the topics and one at the log that follows the positions.
        at_the_second(patch, session.log, "refresh", grow_and_take_out)
        source = Planner(session, max_tasks=1).look()
    assert {at: position.offset for at, position in source.positions.items()} == {
        TopicPartition(flow.topic, 0): 5,
        TopicPartition(other, 0): 0,
        TopicPartition(other, 1): 5,
    }
    assert both.ids() == list(range(10))


def at_the_second(patch: pytest.MonkeyPatch, log: Any, name: str, action: Callable[[], None]) -> None:
    """Do `action` before the second call of a method of the log."""
    method, calls = getattr(log, name), [0]

    def counted() -> CommitState:
        calls[0] += 1
        if calls[0] == 2:
            action()
        return method()

    patch.setattr(log, name, counted)


def test_a_log_that_was_cut_since_the_pipeline_was_bound_is_not_taken_for_that_of_a_new_one(flow: Flow) -> None:
    flow.produce(range(5))
    with flow.session() as session:
        session.bind()
        planner = Planner(session, max_tasks=1)
        source = planner.look()
        # Who reads on notices by itself; who begins again does not know what there was.
        session.log.close()
        flow.delete_records(flow.pipeline.control_topic, 1)
        with raises(finding("control-topic-truncated")):
            planner.bootstrap(source)
    assert flow.positions() == {}

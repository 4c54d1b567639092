"""A topic of a sink that is gone, or may not be described, stands still alone: all others are read, and it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import DataComplete
from tests import support
from tests.codes import raises, says
from tests.pipelines import Flow
from tests.support import TopicFactory, delete_topic


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Has published an id of each of its two topics, whose records have the broker's time."""
    appended = {"message.timestamp.type": "LogAppendTime"}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, appended), kafka_topic(1, appended))
    flow.produce(range(1))
    flow.produce(range(1, 2), topic=flow.topics[1])
    flow.run()
    return flow


def test_a_topic_that_is_gone_stands_still_alone(flow: Flow) -> None:
    kept, gone = flow.topics
    watch = SinkWatch(flow.pipeline)
    before = _valid_through(flow)
    delete_topic(flow.admin, gone)
    for batch in (range(2, 4), range(4, 5)):
        flow.produce(batch)
        assert watch.look().lag == len(batch)
        [blocker] = flow.run().blockers
        with flow.session() as session:
            [shown] = status(session).blockers
        assert (blocker.where, blocker.since_ms) == (shown.where, shown.since_ms) == (gone, blocker.since_ms)
        says(shown.why, Code.NO_SUCH_TOPIC, gone)
    first, second = (event for event in flow.events(DataComplete) if event.silent)
    assert (blocker.since_ms, {*second.silent}, {*second.positions}) == (first.written_at_ms, {gone}, {kept})
    assert _valid_through(flow) == before, "nobody knows what it holds"
    assert watch.look().lag == 0
    support.create_topic(flow.bootstrap, gone)
    flow.produce(range(5, 6), topic=gone)
    assert SinkWatch(flow.pipeline).look().lag == 1
    assert [*flow.run().blockers] == []
    assert flow.ids() == [*range(6)]


def test_a_table_is_made_of_what_the_others_hold(flow: Flow) -> None:
    delete_topic(flow.admin, flow.topics[1])
    flow.produce(range(2, 4))
    tables = [{"name": flow.table}, {"name": "db.late", "auto_create": {}, "history": "none"}]
    flow.but(extra={"tables": tables}).run()
    assert flow.ids("db.late") == [2, 3]


def test_a_first_run_wants_every_topic_that_is_named(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    nowhere = support.unique("nowhere")
    with raises(Code.NO_SUCH_TOPIC, nowhere):
        Flow.create(tmp_path, broker.bootstrap, kafka_topic(), nowhere).run()


def test_a_run_of_which_no_topic_is_left_fails(flow: Flow) -> None:
    for topic in flow.topics:
        delete_topic(flow.admin, topic)
    with raises(Code.NO_SUCH_TOPIC, min(flow.topics)):
        flow.run()


def _valid_through(flow: Flow) -> str | None:
    with flow.session() as session:
        return next(each.valid_through for each in status(session).tables if each.table == flow.table)

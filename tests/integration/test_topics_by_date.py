"""Topics that come and go: all of the last publish are deleted before the first record of the next ones is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.events import BatchAbandoned
from calve.sink_core.control.publisher import GivenUp
from calve.sink_core.sink.verify.proof import verify
from tests import damage
from tests.codes import finding, raises
from tests.pipelines import Flow, reached
from tests.resolving import resolved
from tests.support import TIMEOUT_S, unique


class Days:
    """A pipeline that reads `<prefix>.<day>`, and the topics of single days."""

    def __init__(self, flow: Flow, prefix: str) -> None:
        self.flow, self.prefix = flow, prefix

    def topic(self, day: str) -> str:
        return f"{self.prefix}.{day}"

    def begin(self, day: str, ids: range) -> None:
        self.flow.admin.create_topics([NewTopic(self.topic(day), 1)])[self.topic(day)].result(TIMEOUT_S)
        self.flow.produce(ids, topic=self.topic(day))

    def end(self, day: str) -> None:
        self.flow.admin.delete_topics([self.topic(day)])[self.topic(day)].result(TIMEOUT_S)

    def reading(self, pattern: str) -> Flow:
        source = {"topics": [], "topics_regex": rf"{self.prefix}\.{pattern}"}
        return self.flow.but(extra={**self.flow.extra, "source": source})


@pytest.fixture
def days(tmp_path: Path, broker: Broker) -> Days:
    """One batch of ids 0 to 4 was published from a topic that is gone; the next day's holds 5 to 9."""
    prefix = unique("by")
    source: dict[str, Any] = {"topics": [], "topics_regex": rf"{prefix}\..*"}
    days = Days(Flow.create(tmp_path, broker.bootstrap, extra={"source": source}), prefix)
    days.begin("mon", range(5))
    days.flow.run()
    days.end("mon")
    days.begin("tue", range(5, 10))
    return days


def assert_proven(flow: Flow, ids: range) -> None:
    assert flow.ids() == list(ids)
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def abandon(flow: Flow) -> GivenUp:
    with flow.session() as session:
        session.bind()
        return session.publisher.give_up()


def test_new_topics_go_on_where_all_of_the_last_publish_are_gone(days: Days) -> None:
    assert days.flow.run().ended == "caught up"
    assert_proven(days.flow, range(10))
    days.end("tue")
    days.begin("mon", range(10, 15))
    assert days.flow.run().ended == "caught up"
    assert_proven(days.flow, range(15))


@pytest.mark.parametrize("place", ["write.after-manifests", "publish.after-events"])
def test_of_two_runs_at_once_one_publishes(days: Days, place: str) -> None:
    with reached(place, lambda: days.flow.run()):
        assert [batch.verdict for batch in days.flow.run().batches] == [Verdict.STALE]
    assert_proven(days.flow, range(10))


@pytest.mark.parametrize("place", ["plan.after-start-commit", "write.after-manifests", "publish.after-events"])
def test_a_batch_that_was_given_up_meanwhile_is_planned_again(days: Days, place: str) -> None:
    given: list[GivenUp] = []
    with reached(place, lambda: given.append(abandon(days.flow))):
        report = days.flow.run()
    assert [(batch.verdict, batch.given_up) for batch in report.batches] == [
        (Verdict.STALE, True),
        (Verdict.PUBLISH, False),
    ]
    assert [event.batch_id for event in days.flow.events(BatchAbandoned)] == [*given[0].batch_ids]
    assert_proven(days.flow, range(10))


def test_a_topic_that_exists_and_is_not_read_any_more_has_to_be_asked(days: Days) -> None:
    days.flow.run()
    days.begin("wed", range(10, 15))
    with raises(Code.UNREAD_TOPICS) as refused:
        days.reading("wed").run()
    assert days.topic("tue") in refused.value.hint
    days.reading("(tue|wed)").run()
    days.flow.produce(range(15, 20), topic=days.topic("wed"))
    days.reading("wed").run()
    assert_proven(days.flow, range(20))


def test_a_topic_put_back_whose_position_was_lost_is_still_a_finding(days: Days) -> None:
    days.flow.run()
    days.begin("wed", range(10, 15))
    days.flow.run()
    days.reading("wed").run()
    days.flow.produce(range(15, 16), topic=days.topic("wed"))
    days.reading("wed").run()
    days.end("wed")
    days.flow.produce(range(16, 20), topic=days.topic("tue"))
    damage.delete_the_group(days.flow)
    with raises(finding("positions-missing")):
        days.flow.run()
    resolved(days.flow, "positions-missing", "restore")
    assert days.flow.run().ended == "caught up"
    assert_proven(days.flow, range(20))

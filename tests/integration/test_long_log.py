"""A control log that takes long to read: a reader gets through as long as events come, and runs keep the log short."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from calve.orchestration.local.broker import Broker
from calve.sink_core import timing
from calve.sink_core.codes import Code
from calve.sink_core.control import trim
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.log import READ_TIMEOUT_S, ControlLog
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.sink.run import RunReport, run_pipeline
from tests import support
from tests.codes import names, raises
from tests.pipelines import Flow, reached
from tests.support import TopicFactory
from tests.toy_kind import TOY, ToyState
from tests.trimming import AT_ONCE, log_start, untried

EVENTS = 6
SLOW_S = 0.7 * READ_TIMEOUT_S
"""That one look for events takes here: two without any are too many, and all of them are."""


@dataclass
class Looks:
    """Looks for events, of one each, by a clock that goes on with them; while `silent` none comes."""

    now_s: float = 0.0
    readers: int = 0
    silent: bool = False

    def receive(self, consumer: Consumer, _most: int, _timeout_s: float) -> list[Message]:
        self.now_s += SLOW_S
        return [] if self.silent else consumer.consume(1, 10)


@pytest.fixture
def log(broker: Broker) -> Generator[ControlLog[ToyState]]:
    """One that has read nothing, of a topic with some events."""
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
    with closing(ControlLog(settings, support.unique("long"), TOY, admin=clients.admin(settings))) as made:
        made.open(create=True)
        for _ in range(EVENTS):
            made.append(
                PipelineBound(
                    pipeline_id="p",
                    pipeline="p",
                    deployment="test",
                    fingerprint="f",
                    cluster_id="c",
                    control_topic_id=made.topic_id,
                )
            )
        yield made


@pytest.fixture
def looks(log: ControlLog[ToyState], monkeypatch: pytest.MonkeyPatch) -> Looks:
    made, reader = Looks(), clients.reader
    clock = SimpleNamespace(monotonic=lambda: made.now_s, sleep=time.sleep)

    def counted(*args: Any, **options: Any) -> Consumer:
        made.readers += 1
        return reader(*args, **options)

    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(clients, "reader", counted)
    monkeypatch.setattr(clients, "receive", made.receive)
    assert log.state.next_offset == 0
    return made


@pytest.fixture
def heard() -> Generator[list[str]]:
    steps: list[str] = []
    before = timing.LONG_STEP.set(steps.append)
    yield steps
    timing.LONG_STEP.reset(before)


def test_a_read_goes_on_for_as_long_as_events_come_and_says_where_it_is(
    log: ControlLog[ToyState], looks: Looks, heard: list[str]
) -> None:
    assert log.refresh_to_end().next_offset == EVENTS
    assert looks.now_s > 2 * READ_TIMEOUT_S
    assert len(heard) == EVENTS
    names(heard[0], log.topic, 1, EVENTS)


def test_a_read_without_events_ends_and_the_next_goes_on_from_there(log: ControlLog[ToyState], looks: Looks) -> None:
    with raises(Code.LONG_LOG, 2, EVENTS, of=Unreachable):
        log.refresh(within_s=1.5 * SLOW_S)
    assert log.state.next_offset == 2
    looks.silent = True
    with raises(Code.NO_ANSWER, log.topic, 2, EVENTS, of=Unreachable):
        log.refresh()
    looks.silent = False
    assert log.refresh().next_offset == EVENTS
    assert looks.readers == 1


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return untried(tmp_path, broker, kafka_topic(2))


def ran(flow: Flow, first: int) -> RunReport:
    flow.produce(range(first, first + 5))
    with flow.session() as session:
        return run_pipeline(session)


def test_a_run_trims_a_log_with_many_old_events(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Dagster nobody else does."""
    ran(flow, 0)
    ran(flow, 5)
    assert log_start(flow) == 0
    monkeypatch.setattr(trim, "RUN_FROM", 10)
    young = flow.but(extra={"maintenance": {"trim": {"older_than": "1h"}}})
    off = flow.but(extra={"maintenance": {**AT_ONCE["maintenance"], "off": ["trim"]}})
    for number, each in enumerate((young, off)):
        assert not ran(each, 10 + 5 * number).blockers
        assert log_start(flow) == 0
    assert not ran(flow, 20).blockers
    assert log_start(flow) > 10
    assert ran(flow, 25).failed == {}
    assert flow.ids() == list(range(30))


def test_a_trim_that_fails_is_named_by_the_run_and_fails_it_not(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim, "RUN_FROM", 5)

    def refused() -> None:
        raise Unreachable("no answer", code=Code.NO_ANSWER)

    with reached("trim.before-delete", refused):
        report = ran(flow, 0)
    (blocker,) = report.blockers
    for told in (str(blocker), report.ended):
        names(told, flow.pipeline.control_topic, Code.NO_ANSWER)
    assert (report.failed, log_start(flow)) == ({}, 0)
    assert flow.ids() == list(range(5))

"""A transaction that nobody ends holds back what lies behind it: a mirror and a sink say so, and not "caught up"."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from calve.orchestration.dagster.mirror.verdicts import health as mirror_health
from calve.orchestration.dagster.sink.verdicts import health as sink_health
from calve.orchestration.local.broker import Broker
from calve.sink_core.control import blockers
from calve.sink_core.control.blockers import open_transactions
from calve.sink_core.mirror.status import status as mirror_status
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.status import status as sink_status
from tests import support
from tests.codes import names
from tests.integration.conftest import NewMirror
from tests.pipelines import Flow, record
from tests.support import TIMEOUT_S, TopicFactory


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction that is open counts."""
    monkeypatch.setattr(blockers, "OPEN_S", 0.0)
    monkeypatch.setattr(blockers, "STILL_S", 0.0)


@contextmanager
def open_transaction(bootstrap: str, topic: str, value: bytes) -> Generator[None]:
    """One record in a transaction that ends with the block."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": support.unique("open")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield
    producer.commit_transaction(TIMEOUT_S)
    support.until_stable(bootstrap, topic)


def test_a_mirror_says_what_is_held_back(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic())
    [topic] = mirror.topics
    support.produce(mirror.source, topic, [b"before"])
    assert mirror.run().ended == "caught up"
    with open_transaction(mirror.source, topic, b"within"):
        support.produce(mirror.source, topic, [b"behind"])
        report = mirror.run()
        names(report.ended, f"{topic}[0]", 1)
        [blocker] = report.blockers
        assert blocker.since_ms is not None
        with mirror.plane() as plane:
            seen = mirror_status(plane)
        assert (seen.lag, [each.where for each in seen.blockers]) == (0, [f"{topic}[0]"])
        [verdict] = [each for each in mirror_health(mirror.pipeline, seen) if each.check == "blockers"]
        assert (verdict.passed, verdict.warning, verdict.numbers) == (False, True, {"blockers": 1})
    assert (mirror.run().ended, mirror.assert_same()) == ("caught up", 3)


def test_a_sink_says_what_is_held_back(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic())
    flow.produce(range(3))
    assert flow.run().ended == "caught up"
    with open_transaction(broker.bootstrap, flow.topic, record(3)):
        flow.produce(range(4, 5), partition=0)
        names(flow.run().ended, f"{flow.topic}[0]")
        with flow.session() as session:
            report = sink_status(session)
        assert [each.where for each in report.blockers] == [f"{flow.topic}[0]"]
        verdicts = sink_health(flow.pipeline, report, ())
        [verdict] = [each for each in verdicts if each.check == "blockers"]
        assert (verdict.passed, verdict.numbers) == (False, {"blockers": 1})


def test_where_nothing_is_open_it_is_one_question(
    broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_topic()
    support.produce(broker.bootstrap, topic, [b"x"])
    settings = {"bootstrap.servers": broker.bootstrap}
    asked: list[Any] = []

    class Counting(AdminClient):
        def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
            asked.append(args)
            return super().list_offsets(*args, **kwargs)

    admin = Counting(settings)
    assert open_transactions(admin, settings, {TopicPartition(topic, 0): 1}) == ()
    assert len(asked) == 1
    # What came after the end was read is in no transaction.
    assert open_transactions(admin, settings, {TopicPartition(topic, 0): 0}) == ()
    monkeypatch.setattr(blockers, "OPEN_S", 3600.0)
    with open_transaction(broker.bootstrap, topic, b"y"):
        assert open_transactions(admin, settings, {TopicPartition(topic, 0): 1}) == ()

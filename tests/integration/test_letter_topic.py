"""A topic is told of dead letters in the transaction that publishes their batch: each once, whatever is tried twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control import letters
from calve.sink_core.failpoints import VARIABLE, FailpointReached
from calve.sink_core.sink.checks.acls import needed
from calve.sink_core.sink.checks.kafka import KafkaChecks
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.dead_letters.topic import BATCH, LEFT_OUT, PREFIX
from tests import support
from tests.codes import raises
from tests.pipelines import Flow, reached
from tests.support import TopicFactory

BAD = b'{"id": "seven"}'


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra=told(kafka_topic(1)))


def told(topic: str) -> dict[str, Any]:
    return {"dead_letters": {"topic": topic}}


def dead_letter_topic(flow: Flow) -> str:
    return flow.pipeline.dead_letter_topic or ""


def headers(flow: Flow) -> list[dict[str, bytes | None]]:
    found = support.messages(flow.bootstrap, dead_letter_topic(flow))
    return [{name: v.encode() if isinstance(v, str) else v for name, v in m.headers() or ()} for m in found]


def places(flow: Flow) -> list[tuple[int, int]]:
    """Partition and offset of the records that the topic was told of."""
    return sorted((int(h[f"{PREFIX}partition"] or -1), int(h[f"{PREFIX}offset"] or -1)) for h in headers(flow))


def test_a_letter_is_the_record_with_the_headers_that_connect_gives_it(flow: Flow) -> None:
    producer = Producer({"bootstrap.servers": flow.bootstrap})
    trace: list[tuple[str, str | bytes | None]] = [("trace", b"7"), ("trace", None)]
    producer.produce(flow.topic, BAD, b"k", partition=1, headers=trace, timestamp=1_700_000)
    assert producer.flush(30) == 0
    flow.produce(range(3), partition=1)
    report = flow.run()
    assert flow.ids() == [0, 1, 2]
    [message] = support.messages(flow.bootstrap, dead_letter_topic(flow))
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"k", BAD, 1_700_000)
    own, ours = (message.headers() or [])[:2], dict((message.headers() or [])[2:])
    assert own == trace
    [row] = flow.rows(flow.pipeline.dead_letter_table)
    assert {name.removeprefix(PREFIX): value for name, value in ours.items()} == {
        "topic": flow.topic.encode(),
        "partition": b"1",
        "offset": b"0",
        "connector.name": flow.name.encode(),
        "stage": b"TASK_PUT" if row["stage"] == "fit" else b"VALUE_CONVERTER",
        "exception.class.name": b"calve.BadRecord",
        "exception.message": row["error"].encode(),
        BATCH: report.batches[0].batch_id.encode(),
    }


@pytest.mark.parametrize("place", ["after-begin", "after-letters", "after-events"])
def test_a_publisher_that_is_overtaken_has_told_nothing(flow: Flow, place: str) -> None:
    flow.run()
    support.produce(flow.bootstrap, flow.topic, [BAD] * 5)
    with reached(f"publish.{place}", flow.run):
        flow.run()
    assert places(flow) == [(0, offset) for offset in range(5)]


@pytest.mark.parametrize("place", ["after-letters", "after-offsets", "after-commit"])
def test_a_publish_that_dies_is_told_of_once_it_counts(flow: Flow, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.run()
    support.produce(flow.bootstrap, flow.topic, [BAD] * 5)
    monkeypatch.setenv(VARIABLE, f"publish.{place}=raise")
    with pytest.raises(FailpointReached):
        flow.run()
    monkeypatch.delenv(VARIABLE)
    flow.run()
    assert places(flow) == [(0, offset) for offset in range(5)]
    assert len(flow.rows(flow.pipeline.dead_letter_table)) == 5


def test_letters_are_sent_in_parts_of_bounded_size(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "SENT_BYTES", 10_000)
    support.produce(flow.bootstrap, flow.topic, [b"x" * 1_000] * 300)
    support.produce(flow.bootstrap, flow.topic, [b"y" * 1_000] * 200, partition=1)
    flow.run()
    assert places(flow) == [(0, o) for o in range(300)] + [(1, o) for o in range(200)]


def test_a_record_that_the_topic_has_no_room_for_is_told_of_without_it(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    small, large = kafka_topic(1, {"max.message.bytes": "2000"}), kafka_topic(1, {"max.message.bytes": "8000000"})
    for topic, most in ((small, 900), (large, 7_000_000)):
        flow = Flow.create(
            tmp_path, broker.bootstrap, kafka_topic(1, {"max.message.bytes": "9000000"}), extra=told(topic)
        )
        producer = Producer({"bootstrap.servers": flow.bootstrap, "message.max.bytes": 9_000_000})
        for size in (most, 8_500_000):
            producer.produce(flow.topic, json.dumps({"id": "x" * size}))
        assert producer.flush(30) == 0
        flow.run()
        values = [m.value() for m in support.messages(flow.bootstrap, topic)]
        assert [len(value or b"") for value in values] == [most + len('{"id": ""}'), 0]
        [whole, without] = headers(flow)
        assert LEFT_OUT not in whole
        assert flow.pipeline.dead_letter_table in (without[LEFT_OUT] or b"").decode()
        assert places(flow) == [(0, 0), (0, 1)]


def test_a_replay_tells_the_topic_nothing(flow: Flow) -> None:
    support.produce(flow.bootstrap, flow.topic, [BAD] * 3)
    flow.run()
    with flow.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 0
    assert len(places(flow)) == 3


def test_a_topic_that_is_not_there_stops_the_run_before_it_writes(flow: Flow) -> None:
    away = flow.but(extra=told(support.unique("nowhere")))
    away.produce(range(3))
    with raises(Code.NO_SUCH_TOPIC, dead_letter_topic(away)):
        away.run()
    assert away.positions() == {}


def test_the_check_looks_at_the_topic_and_grants_it(flow: Flow) -> None:
    checks = KafkaChecks(flow.pipeline)
    asked = next(check for check in checks.checks() if check.name == "dead-letter topic")
    said = str(asked.ask())
    assert [said.count(part) for part in (dead_letter_topic(flow), "1,048,588")] == [1, 1]
    [acl] = [acl for acl in needed(flow.pipeline) if acl.name == dead_letter_topic(flow)]
    assert [operation.name for operation in acl.operations] == ["WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"]

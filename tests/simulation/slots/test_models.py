"""The modelled producer of slots behaves as the real one does on a real broker: the same tests for both."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewTopic

from calve.orchestration.local.broker import Broker
from calve.sink_core import compiled
from calve.sink_core.kafka import clients, reader
from calve.sink_core.kafka.objects import Objects
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.offsets import OffsetRange
from tests import support
from tests.simulation.environment import installed as sink_installed
from tests.simulation.slots.environment import installed
from tests.simulation.slots.world import MirrorWorld, load_mirror

MODEL, REAL = "model", "real"
HEADERS = [("h", b"1"), ("h", None)]


class Kafka:
    """A topic with two partitions, and clients as slots open them. `world` is set for the model."""

    def __init__(self, settings: clients.Settings, world: MirrorWorld | None) -> None:
        self.settings, self.world = settings, world
        self.topic = support.unique("records")
        admin = clients.admin(settings)
        admin.create_topics([NewTopic(self.topic, num_partitions=2, config={})])[self.topic].result(30)

    def producer(self) -> Any:
        """That has fenced every earlier one."""
        producer: Any = clients.transactional_producer(self.settings, f"{self.topic}.slot-0")
        producer.init_transactions(30)
        return producer

    def send(self, producer: Any, *values: bytes, partition: int = 0) -> None:
        for value in values:
            producer.produce(self.topic, value, b"k", partition, None, None, 1_234, HEADERS)
        assert producer.flush(30) == 0

    def settle(self) -> None:
        if self.world is not None:
            self.world.target.settle()

    def read(self, end: int, partition: int = 0) -> list[tuple[Any, ...]]:
        """What a task is given of the offsets below `end`."""
        self.settle()
        found: list[tuple[Any, ...]] = []
        with RangeReader(self.settings, [OffsetRange(self.topic, partition, 0, end)], group="g") as reader:
            for messages in reader:
                headers = [messages.headers[place] for place in range(len(messages))]
                columns = (messages.keys, messages.values, messages.stated_ms.tolist(), headers)
                found += zip(messages.offsets.tolist(), *columns, strict=True)
        return found


@pytest.fixture(params=[MODEL, REAL])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Kafka]:
    if request.param == REAL:
        broker: Broker = request.getfixturevalue("broker")
        yield Kafka({"bootstrap.servers": broker.bootstrap}, None)
        return
    with installed() as environment:
        environment.world = MirrorWorld(0, load_mirror(tmp_path))
        # These topics are no remote topics, and nothing is promised of them.
        environment.world.target.decided = lambda _transaction: None
        yield Kafka({"bootstrap.servers": "target"}, environment.world)


@pytest.mark.parametrize("installed", [installed, sink_installed])
def test_the_model_is_asked_where_kernels_are_loaded(
    installed: Callable[[], AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "usable", lambda *_: True)
    with installed():
        assert reader.deliveries(1) is Objects


def record(offset: int, value: bytes) -> tuple[Any, ...]:
    return offset, b"k", value, 1_234, HEADERS


def test_a_producer_goes_from_one_transaction_to_the_next(kafka: Kafka) -> None:
    producer = kafka.producer()
    for value in (b"a", b"b"):
        producer.begin_transaction()
        kafka.send(producer, value)
        producer.commit_transaction(30)
    assert kafka.read(4) == [record(0, b"a"), record(2, b"b")]


def test_what_is_aborted_nobody_sees_and_the_next_transaction_follows(kafka: Kafka) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    kafka.send(producer, b"a", b"b")
    producer.abort_transaction(30)
    producer.begin_transaction()
    kafka.send(producer, b"c")
    kafka.send(producer, b"d", partition=1)
    producer.commit_transaction(30)
    assert kafka.read(5) == [record(3, b"c")]
    assert kafka.read(2, partition=1) == [record(0, b"d")]


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("told", [False, True], ids=["no callback", "callback"])
def test_a_producer_that_is_fenced_says_so_when_it_sends_and_is_of_no_use_then(
    kafka: Kafka, sent: bool, told: bool
) -> None:
    first = kafka.producer()
    first.begin_transaction()
    if sent:
        kafka.send(first, b"a")
    kafka.producer()
    callback = (lambda _error, _message: None) if told else None
    first.produce(kafka.topic, b"b", b"k", 0, callback, None, 1_234, HEADERS)
    with pytest.raises((KafkaException, SystemError)) as raised:
        first.flush(30)
    # Where it has deliveries to tell of after the error, Python makes another one of it.
    found: Any = raised.value.__cause__ if isinstance(raised.value, SystemError) else raised.value
    assert found.args[0].code() == KafkaError._FENCED
    assert first.flush(30) == 0
    with pytest.raises(KafkaException) as again:
        first.produce(kafka.topic, b"c", b"k", 0, None, None, 1_234, HEADERS)
    assert again.value.args[0].code() == KafkaError._FATAL
    for ask in (first.commit_transaction, first.abort_transaction):
        with pytest.raises(KafkaException):
            ask(30)


def test_offsets_for_a_topic_that_is_not_there_are_refused(kafka: Kafka) -> None:
    producer = kafka.producer()
    producer.begin_transaction()
    group: Any = clients.reader(kafka.settings, group="g")
    wanted = [KafkaPartition(f"{kafka.topic}-not", 0, 1)]
    with pytest.raises(KafkaException) as raised:
        producer.send_offsets_to_transaction(wanted, group.consumer_group_metadata(), 3)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    group.close()

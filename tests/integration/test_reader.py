"""Ranges read exactly, whatever lies within them and at their ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import calve.sink_core.kafka.reader
from calve.orchestration.local import broker as embedded
from calve.sink_core.codes import Code
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.kafka.reader import BATCH_BYTES, RangeReader
from calve.sink_core.offsets import OffsetRange
from tests import support
from tests.codes import finding, raises

pytestmark = pytest.mark.usefixtures("each_delivery")

Read = Callable[..., tuple[list[bytes | None], list[PartitionCounts]]]

BEYOND_9999_MS = 253_402_300_800_000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.fixture
def read(broker: embedded.Broker) -> Read:
    """Read slices to their ends: `read(*slices)` → values of the first slice in order, and the counts of all."""

    def run(*slices: OffsetRange, **options: float) -> tuple[list[bytes | None], list[PartitionCounts]]:
        values: list[bytes | None] = []
        with RangeReader({"bootstrap.servers": broker.bootstrap}, slices, group="g", **options) as reader:
            for messages in reader:
                values += [v for v, i in zip(messages.values, messages.slices, strict=True) if i == 0]
            return values, reader.counts

    return run


@pytest.fixture
def transactional(broker: embedded.Broker) -> Iterator[Producer]:
    """A producer whose transactions are left to the test; one that hangs is aborted at the end."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": support.unique("t")}
    producer = Producer(settings)
    producer.init_transactions(30)
    yield producer
    Producer(settings).init_transactions(30)


def send(producer: Producer, topic: str, values: Sequence[str], *, commit: bool = True) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def names(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def encoded(*lists: list[str]) -> list[bytes]:
    return [name.encode() for part in lists for name in part]


def test_aborted_transactions_and_control_records_are_gaps(
    read: Read, kafka_topic: support.TopicFactory, transactional: Producer
) -> None:
    topic = kafka_topic()
    send(transactional, topic, names("a", 5))
    send(transactional, topic, names("x", 7), commit=False)
    send(transactional, topic, names("b", 3))
    end = 5 + 1 + 7 + 1 + 3 + 1
    values, (counts,) = read(OffsetRange(topic, 0, 0, end))
    assert values == encoded(names("a", 5), names("b", 3))
    assert (counts.records, counts.gaps) == (8, end - 8)


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        (0, 3, 3),
        (0, 5, 5),
        (0, 6, 5),
        (0, 9, 5),
        (0, 14, 5),
        (0, 15, 6),
        (6, 14, 0),
        (5, 6, 0),
        (13, 17, 3),
        (4, 16, 3),
    ],
)
def test_a_range_may_end_anywhere(
    read: Read, kafka_topic: support.TopicFactory, transactional: Producer, start: int, end: int, records: int
) -> None:
    topic = kafka_topic()
    send(transactional, topic, names("a", 5))
    send(transactional, topic, names("x", 7), commit=False)
    send(transactional, topic, names("b", 30))
    _, (counts,) = read(OffsetRange(topic, 0, start, end))
    assert (counts.records, counts.gaps) == (records, end - start - records)


def test_a_range_may_end_at_the_last_stable_offset(
    read: Read, kafka_topic: support.TopicFactory, transactional: Producer
) -> None:
    topic = kafka_topic()
    send(transactional, topic, names("a", 5))
    transactional.begin_transaction()
    transactional.produce(topic, "open", partition=0)
    transactional.flush(30)
    _, (counts,) = read(OffsetRange(topic, 0, 0, 6))
    assert (counts.records, counts.gaps) == (5, 1)
    with raises(Code.SILENT_PARTITION, topic, "[0]", 7, 5, 1):
        read(OffsetRange(topic, 0, 0, 7), stall_seconds=1)


def test_compaction_leaves_gaps(start_broker: Callable[..., embedded.Broker]) -> None:
    broker = start_broker(properties={"log.cleaner.backoff.ms": "100"})
    config = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    topic = support.create_topic(broker.bootstrap, "compacted", config=config)
    support.produce(broker.bootstrap, topic, names("v", 200), keys=[f"k{i % 10}" for i in range(200)])
    deadline = time.monotonic() + 60
    rolled = 0
    while len(support.consume(broker.bootstrap, topic)) >= 200 + rolled:
        assert time.monotonic() < deadline, "the broker did not compact"
        time.sleep(0.6)
        rolled += support.produce(broker.bootstrap, topic, ["later"], keys=["later"])
    left = support.consume(broker.bootstrap, topic)
    end = 200 + rolled
    with RangeReader({"bootstrap.servers": broker.bootstrap}, [OffsetRange(topic, 0, 0, end)], group="g") as reader:
        values = [value for messages in reader for value in messages.values]
        (counts,) = reader.counts
    assert values == left
    assert (counts.records, counts.gaps) == (len(left), end - len(left))
    assert counts.gaps > 100


def test_many_partitions_are_read_together_and_counted_apart(
    read: Read, kafka_topic: support.TopicFactory, produce: support.Produce
) -> None:
    first, second = kafka_topic(partitions=3), kafka_topic(partitions=2)
    for topic, partition, n in ((first, 0, 10), (first, 1, 2_000), (first, 2, 5), (second, 0, 7), (second, 1, 9)):
        keys = names("k", n) if topic == second else None
        produce(topic, names("v", n), partition=partition, keys=keys, timestamps=range(1_000, 1_000 + n))
    slices = (
        OffsetRange(first, 1, 3, 1_990),
        OffsetRange(second, 0, 0, 7),
        OffsetRange(first, 2, 4, 5),
        OffsetRange(second, 1, 2, 5),
    )
    values, counts = read(*slices)
    assert values == encoded(names("v", 1_990)[3:])
    assert [c.records for c in counts] == [1_987, 7, 1, 3]
    assert [c.max_timestamp_ms for c in counts] == [1_000 + s.end - 1 for s in slices]
    assert [c.timestamp_type for c in counts] == [1, 1, 1, 1]
    assert counts[1].value_bytes == 7 * 2 * len("v0")


def test_a_range_is_read_to_its_last_record_however_few_come_at_once(
    read: Read, kafka_topic: support.TopicFactory, produce: support.Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calve.sink_core.kafka.reader, "BATCH_RECORDS", 1)
    topic = kafka_topic()
    produce(topic, names("v", 10))
    values, (counts,) = read(OffsetRange(topic, 0, 2, 8))
    assert values == encoded(names("v", 8)[2:])
    assert (counts.records, counts.gaps) == (6, 0)


def test_large_records_are_handed_on_in_bounded_batches(
    broker: embedded.Broker, kafka_topic: support.TopicFactory, produce: support.Produce
) -> None:
    topic, record, n = kafka_topic(), b"x" * 900_000, 250
    produce(topic, (b"small" for _ in range(5_000)))
    produce(topic, (record for _ in range(n)))
    seen, process = 0, psutil.Process()
    settings = {"bootstrap.servers": broker.bootstrap}
    with RangeReader(settings, [OffsetRange(topic, 0, 0, 5_000 + n)], group="g") as reader:
        before = process.memory_info().rss
        for messages in reader:
            assert messages.sizes.sum() <= 4 * BATCH_BYTES
            assert process.memory_info().rss - before < 150 * 1024 * 1024 < n * len(record)
            seen += len(messages)
    assert seen == 5_000 + n


def test_records_come_with_all_that_they_have(broker: embedded.Broker, kafka_topic: support.TopicFactory) -> None:
    topic = kafka_topic(1, ANY_TIME)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    names: list[list[tuple[str, str | bytes | None]] | None] = [None, [], [("é", b""), ("é", None), ("", b"\0\n")]]
    for i in range(300):
        value, key = (None, b"", b"v\n%d" % i)[i % 3], (b"k%d" % i, None, b"")[i % 7 % 3]
        moment = (1_000 + i, BEYOND_9999_MS)[i % 11 == 0]
        producer.produce(topic, value, key, 0, timestamp=moment, headers=names[i % 5 % 3])
    assert producer.flush(30) == 0
    sent = [
        (m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in support.messages(broker.bootstrap, topic)
    ]
    found = list[object]()
    with RangeReader({"bootstrap.servers": broker.bootstrap}, [OffsetRange(topic, 0, 0, 300)], group="g") as reader:
        for messages in reader:
            there = zip(messages.timestamp_types.tolist(), messages.stated_ms.tolist(), strict=True)
            headers = [messages.headers[place] for place in range(len(messages))]
            found += zip(messages.offsets.tolist(), messages.keys, messages.values, headers, there, strict=True)
            assert messages.tombstones.tolist() == [value is None for value in messages.values]
            assert (
                messages.timestamps_ms == np.where(messages.stated_ms == BEYOND_9999_MS, -1, messages.stated_ms)
            ).all()
            some = messages.at(np.arange(0, len(messages), 2))
            rows = [(some.keys[i], some.values[i], some.headers[i]) for i in range(len(some))]
            assert (
                rows == [(key, value, of) for _, key, value, of, _ in sent[messages.offsets[0] :][: len(messages)]][::2]
            )
    assert found == sent
    assert [c.value_bytes for c in reader.counts] == [sum(len(k or b"") + len(v or b"") for _, k, v, *_ in sent)]


def test_an_interrupt_between_a_record_and_its_columns_leaves_none_to_wait_for(
    broker: embedded.Broker,
    kafka_topic: support.TopicFactory,
    produce: support.Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calve.sink_core.kafka.reader, "_POLL_SECONDS", 60.0)
    topic = kafka_topic()
    produce(topic, ["first"])

    def interrupt() -> None:
        """While the client waits, which notices it when the next record comes."""
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        produce(topic, ["second"])

    reader = RangeReader({"bootstrap.servers": broker.bootstrap}, [OffsetRange(topic, 0, 0, 10)], group="g")
    interrupting = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes in any of these lines
        for _ in reader:
            interrupting.start()
        interrupting.join()
    interrupting.join()
    closing = threading.Thread(target=lambda: reader.__exit__(None, None, None), daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


def test_offsets_lost_to_retention_are_a_finding(
    broker: embedded.Broker, read: Read, kafka_topic: support.TopicFactory, produce: support.Produce
) -> None:
    topic = kafka_topic()
    produce(topic, names("v", 10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        done.result(30)
    with raises(finding("records-lost-to-retention"), topic, "[0]", 2, 4):
        read(OffsetRange(topic, 0, 2, 10))


def test_offsets_that_do_not_exist_are_a_finding(
    read: Read, kafka_topic: support.TopicFactory, produce: support.Produce
) -> None:
    topic = kafka_topic()
    produce(topic, names("v", 10))
    with raises(finding("positions-beyond-end"), topic, "[0]", 20, 10):
        read(OffsetRange(topic, 0, 20, 30))


def test_a_topic_that_is_gone_is_named(read: Read) -> None:
    with raises(Code.NO_SUCH_TOPIC, "no-such-topic"):
        read(OffsetRange("no-such-topic", 0, 0, 1))


def test_brokers_that_do_not_answer_are_reported_with_the_cause() -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{embedded.free_port()}"}
    with (
        RangeReader(settings, [OffsetRange("t", 0, 0, 1)], group="g", stall_seconds=1) as reader,
        raises(Code.SILENT_PARTITION, "t[0]", 1, 0),
    ):
        list(reader)

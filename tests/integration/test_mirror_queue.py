"""A slot's producer that has no room for now: every record is sent once and in its order, whatever it carries."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.mirror.part import Part
from calve.sink_core.offsets import OffsetRange, TopicPartition
from tests import support
from tests.support import TopicFactory

RECORDS = 20_000
ROOM = 100
"""Records that the producer takes at a time."""
BEYOND_9999_MS = 253_402_300_800_000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.mark.usefixtures("each_delivery")
def test_what_the_queue_refuses_is_sent_again_at_its_place(broker: Broker, kafka_topic: TopicFactory) -> None:
    source, remote = kafka_topic(1, ANY_TIME), kafka_topic(1, ANY_TIME)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for i in range(RECORDS):
        value = None if i % 7 == 0 else b"%d" % i
        key = (None, b"", b"k%d" % i)[i % 3]
        headers: list[tuple[str, str | bytes | None]] | None = [("h", b"%d" % i), ("h", None)] if i % 5 == 0 else None
        producer.produce(source, value, key, 0, timestamp=BEYOND_9999_MS if i == 9 else 1_000 + i, headers=headers)
    assert producer.flush(60) == 0

    narrow = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": ROOM}
    )
    planned = OffsetRange(source, 0, 0, RECORDS)
    part = Part(planned, TopicPartition(remote, 0), narrow, adjusts=False)
    with RangeReader({"bootstrap.servers": broker.bootstrap}, [planned], group=support.unique("queue")) as reader:
        for messages in reader:
            for _, places in messages.by_slice():
                part.copy(messages, places)
    assert narrow.flush(60) == 0

    copied = part.copied()
    assert (copied.first, copied.records, copied.max_timestamp_ms) == (0, RECORDS, BEYOND_9999_MS)
    sent, arrived = (support.messages(broker.bootstrap, topic) for topic in (source, remote))
    assert [(m.key(), m.value(), m.headers(), m.timestamp()) for m in arrived] == [
        (m.key(), m.value(), m.headers(), m.timestamp()) for m in sent
    ]

"""Topics as a consumer of committed records, or of all, has them: what measurements count and prove by."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from calve.sink_core.kafka import clients

TIMEOUT_S = 60.0


def reader(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    conf = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    return Consumer({**conf, "isolation.level": isolation, "enable.partition.eof": True}, logger=clients.LOGGER)


def end(consumer: Consumer, at: TopicPartition) -> int:
    """The offset behind the last one that the reader sees."""
    return consumer.get_watermark_offsets(at, timeout=TIMEOUT_S)[1]


def messages(consumer: Consumer, at: TopicPartition, start: int) -> Iterator[Message]:
    """Those from `start` to where the reader sees the end now."""
    consumer.assign([TopicPartition(at.topic, at.partition, start)])
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        if message.error():
            return
        yield message

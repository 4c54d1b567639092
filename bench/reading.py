"""Topics as a consumer of committed records, or of all, has them: what measurements count and prove by."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from calve.sink_core.kafka import clients

TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.2
_NEW = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""What a broker says of a partition that was just made."""


def reader(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    conf = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    return Consumer({**conf, "isolation.level": isolation, "enable.partition.eof": True}, logger=clients.LOGGER)


def end(consumer: Consumer, at: TopicPartition) -> int:
    """The offset behind the last one that the reader sees; of a topic that was just made, once it has a leader."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(at, timeout=TIMEOUT_S)[1]
        except KafkaException as error:
            if error.args[0].code() not in _NEW or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_S)


def messages(consumer: Consumer, at: TopicPartition, start: int) -> Iterator[Message]:
    """Those from `start` to where the reader sees the end now."""
    consumer.assign([TopicPartition(at.topic, at.partition, start)])
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        if message.error():
            return
        yield message

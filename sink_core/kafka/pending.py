"""How old the first pending record of each partition is: one short read from where the positions are."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import TopicPartition as KafkaPartition

from calve.sink_core.kafka.clients import UNCOMMITTED, Settings, reader, receive
from calve.sink_core.kafka.failures import reported
from calve.sink_core.offsets import Offsets, TopicPartition
from calve.sink_core.timing import Deadline

# librdkafka wants a group id; without a subscription or a commit the group never comes to exist.
_GROUP = "calve-pending"
_POLL_S = 0.2
_SETTINGS: dict[str, object] = {
    # Retention may move a log start between the look-up and the read.
    "auto.offset.reset": "earliest",
    # A broker sends a batch at least, and no more is asked for.
    "max.partition.fetch.bytes": 1024,
    "queued.max.messages.kbytes": 1024,
}


def first_timestamps(
    settings: Settings, positions: Offsets, *, timeout_s: float, uncommitted: bool = False
) -> dict[TopicPartition, int]:
    """The time, in milliseconds, of the first record at each position or behind it; `uncommitted` ones count if asked.

    Lacks partitions that have none, and those that gave none within `timeout_s`.
    """
    left, found, deadline = set(positions), dict[TopicPartition, int](), Deadline.after(timeout_s)
    if not left:
        return found
    isolation = UNCOMMITTED if uncommitted else {}
    with (
        reported("reading the first pending records"),
        closing(reader(settings, group=_GROUP, **_SETTINGS, **isolation)) as consumer,
    ):
        consumer.assign([KafkaPartition(*at, offset) for at, offset in positions.items()])
        while left and not deadline.passed:
            for message in receive(consumer, len(left), min(_POLL_S, deadline.left_s)):
                at = TopicPartition(message.topic() or "", message.partition() or 0)
                if at in left and message.error() is None:
                    found[at] = message.timestamp()[1]
                if at in left:
                    left.discard(at)
                    consumer.incremental_unassign([KafkaPartition(*at)])
    return found

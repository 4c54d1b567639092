"""Compacted topics on the target that are in the format of others: made if they are missing, and written to."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import NewTopic
from calve.sink_core.kafka.creation import create_missing
from calve.sink_core.kafka.failures import reported
from calve.sink_core.mirror.plane import MirrorPlane


def ensure(plane: MirrorPlane, topics: Mapping[str, int]) -> None:
    """Make the topics that are missing, each with so many partitions."""
    factor = plane.pipeline.config.target.replication_factor or -1
    new = [NewTopic(name, number, factor, config={"cleanup.policy": "compact"}) for name, number in topics.items()]
    create_missing(plane.admin, new)


def write(plane: MirrorPlane, topic: str, records: Mapping[bytes, bytes | None]) -> None:
    """Write a value for each key, to the partition that Java's producer takes for it; None deletes the key.

    Raises Unreachable if a broker does not take one.
    """
    # librdkafka's own choice is another one: whoever writes a key with Java's would leave two values of it.
    producer = clients.producer(plane.pipeline.kafka.properties, partitioner="murmur2")
    refused: list[KafkaError] = []
    with reported(f"writing to {topic}"):
        clients.await_broker(producer, topic, ADMIN_TIMEOUT_S)
        for key, value in records.items():
            producer.produce(topic, value, key, on_delivery=lambda error, _: refused.append(error) if error else None)
            producer.poll(0)
        left = producer.flush(ADMIN_TIMEOUT_S)
        if refused:
            raise KafkaException(refused[0])
    if left:
        raise Unreachable(
            f"{topic}: {left:,} records were not acknowledged", hint="run again", code=Code.NOT_ACKNOWLEDGED
        )

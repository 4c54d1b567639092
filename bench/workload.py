"""What is measured with: topics of events, made once and kept, and pipelines that read them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.progress import say
from bench.shapes import DISTINCT, FLAT, Shape
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import describe_topics, high_watermarks

PARTITIONS = 4
COLUMNS = FLAT.columns
_TIMEOUT_S = 300.0


def fill(bootstrap: str, records: int, shape: Shape = FLAT, *, keyed: bool = False) -> str:
    """The topic with `records` events on `PARTITIONS` partitions, lz4 as producers set it; its name.

    With `keyed` each has a key and a header of 16 bytes.
    """
    topic = f"bench-{shape.name}{'-keyed' if keyed else ''}-{records}"
    if _records(bootstrap, topic) == records:
        return topic
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=_TIMEOUT_S).topics:
        admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
    _create(admin, topic)
    say(f"producing {records:,} events to {topic}")
    _produce(bootstrap, topic, shape, records, keyed=keyed)
    return topic


def new_topic(bootstrap: str) -> str:
    """An empty topic with `PARTITIONS` partitions; its name."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    _create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    return topic


def events(number: int) -> list[bytes]:
    """The first `number` events with ten fields."""
    return FLAT.events(number)


def numbered(event: bytes, number: int) -> bytes:
    """The event with another id, which is its first field."""
    return b'{"id":%d%b' % (number, event[event.index(b",") :])


def write_pipeline(
    directory: Path, bootstrap: str, topic: str, partition_by: Sequence[str] = (), shape: Shape = FLAT
) -> Path:
    """The file of a pipeline that has never run, which reads `topic` into a new table of a catalog in `directory`."""
    directory.mkdir(parents=True)
    connections = {
        "deployment": "bench",
        "kafka": {"main": {"bootstrap.servers": bootstrap}},
        "catalog": {
            "lake": {
                "type": "sql",
                "uri": f"sqlite:///{directory / 'catalog.db'}",
                "warehouse": f"file://{directory / 'warehouse'}",
            }
        },
        "spark": {"here": {"master": "local[*]"}},
    }
    auto_create = {"columns": dict(shape.columns), "partition_by": list(partition_by)}
    pipeline = {
        "name": f"bench_{uuid.uuid4().hex[:8]}",
        "kind": "sink",
        "source": {"kafka": "main", "topics": [topic]},
        "catalog": "lake",
        "spark": "here",
        "tables": [{"name": "bench.events", "auto_create": auto_create}],
    }
    (directory / "connections.yaml").write_text(yaml.safe_dump(connections, sort_keys=False))
    path = directory / "pipeline.yaml"
    path.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    return path


def _records(bootstrap: str, topic: str) -> int:
    admin = clients.admin({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=_TIMEOUT_S).topics:
        return -1
    partitions = describe_topics(admin, [topic], timeout_s=_TIMEOUT_S)[topic].all_partitions
    return sum(high_watermarks(admin, list(partitions), timeout_s=_TIMEOUT_S).values())


def _create(admin: AdminClient, topic: str) -> None:
    """Create the topic; right after a deletion the name may still be taken for a moment."""
    while True:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        else:
            return


def _produce(bootstrap: str, topic: str, shape: Shape, records: int, *, keyed: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, value in enumerate(islice(cycle(shape.events(DISTINCT)), records)):
        key, headers = (b"%d" % number, [("trace", b"%016x" % number)]) if keyed else (None, None)
        while True:
            try:
                producer.produce(topic, value, key, number % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number and number % 1_000_000 == 0:
            say(f"produced {number:,}")
    if left := producer.flush(_TIMEOUT_S):
        raise SystemExit(f"{left} events were not acknowledged in {_TIMEOUT_S:.0f} s")

"""The peer of mirrors: MirrorMaker 2 with exactly-once, in its dedicated mode, by two tasks in one process.

It is set to be fast, as its documents say for a backlog: large polls, batches and fetches, lz4 on the way, records of
ten seconds in a transaction as Calve has them, nothing emitted beside the copy. What it does without a start is
measured from the half of the records on, when its JVM has compiled what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.java_peer import JavaPeer
from bench.measure import Measured
from calve.sink_core.detached import HOST, free_port
from calve.sink_core.jars import JarSet, kafka_jars, resolve
from calve.sink_core.java import write_properties

MIRROR_MAKER = JarSet(
    "kafka-mirror",
    roots=(
        "org.apache.kafka:connect-mirror:4.3.1",
        "org.apache.kafka:connect-mirror-client:4.3.1",
        "org.apache.kafka:connect-json:4.3.1",
    ),
)
"""Beside the broker's, of the same version."""
TASKS = 2
SETTINGS = {
    "clusters": "source, target",
    "source->target.enabled": "true",
    "target->source.enabled": "false",
    "tasks.max": str(TASKS),
    "target.exactly.once.source.support": "enabled",
    "source.consumer.isolation.level": "read_committed",
    "source->target.transaction.boundary": "interval",
    "source->target.transaction.boundary.interval.ms": "10000",
    "source.consumer.max.poll.records": "20000",
    "source.consumer.fetch.max.bytes": str(128 * 2**20),
    "source.consumer.max.partition.fetch.bytes": str(16 * 2**20),
    "target.producer.batch.size": "1000000",
    "target.producer.linger.ms": "50",
    "target.producer.buffer.memory": str(256 * 2**20),
    "target.producer.compression.type": "lz4",
    "target.producer.max.request.size": str(16 * 2**20),
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.topic.acls.enabled": "false",
    **{
        f"{each}.factor": "1"
        for each in (
            *("replication", "offset-syncs.topic.replication", "checkpoints.topic.replication"),
            *("offset.storage.replication", "status.storage.replication", "config.storage.replication"),
        )
    },
}


def copy(
    source: str, target: str, topic: str, directory: Path, records: int, copied: Callable[[], int]
) -> Sequence[Measured]:
    """From the half of the records to the last, and from its start to the last. `copied` says how many there are.

    Raises SystemExit if it ends, or doesn't come to an end.
    """
    directory.mkdir()
    of_this_run = {
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.topics": topic,
        # Exactly-once needs its own REST interface, by which workers have each other fence.
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{HOST}:{free_port()}",
    }
    file = write_properties(directory / "mm2.properties", {**SETTINGS, **of_this_run})
    main, jars = "org.apache.kafka.connect.mirror.MirrorMaker", [*resolve(MIRROR_MAKER), *kafka_jars()]
    return JavaPeer("MirrorMaker 2", main, file, jars, directory).measured(records, copied)

"""A mirror of a test's own between two clusters, short ways to run it, and what both clusters hold."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from calve.sink_core.config.load import CONNECTIONS_FILE, load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.events import Event
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import MirrorReport, run_mirror
from calve.sink_core.mirror.state import MIRROR, MirrorState
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.tasks import Tasks
from tests import support
from tests.support import TIMEOUT_S

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Key, value, headers and timestamp of a record: all that a mirror has to keep."""


@dataclass(frozen=True)
class MirrorFlow:
    """A mirror from the cluster `eu` at `source` to the cluster `us` at `target`, its files in `files`.

    `extra` goes into its file, whose own keys it wins over; `topics` are those of `source.topics`.
    """

    files: Path
    source: str
    target: str
    topics: tuple[str, ...]
    name: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    spark: Mapping[str, Any] = field(default_factory=lambda: {"master": "local[2]"})

    @classmethod
    def create(cls, directory: Path, source: str, target: str, *topics: str, **options: Any) -> MirrorFlow:
        """One with a name that nobody else uses."""
        name = support.unique("m").replace("-", "_")
        return cls(directory / name, source, target, topics, name, **options)

    def but(self, **changes: Any) -> MirrorFlow:
        """The same mirror from other files: another host's, or a later version's."""
        return replace(self, files=self.files / support.unique("other"), **changes)

    @cached_property
    def pipeline(self) -> MirrorPipeline:
        """Written to `files` and loaded as a user's would be."""
        self.files.mkdir(parents=True, exist_ok=True)
        connections = {
            "deployment": "test",
            "kafka": {
                "eu": {"bootstrap.servers": self.source},
                "us": {"bootstrap.servers": self.target},
            },
            "spark": {"here": dict(self.spark)},
        }
        file = {
            "name": self.name,
            "kind": "mirror",
            "source": {"kafka": "eu", **({"topics": list(self.topics)} if self.topics else {})},
            "target": {"kafka": "us"},
            "spark": "here",
            "batch": support.SHORT_CUT,
        }
        # JSON is YAML, and nothing in it needs quoting.
        (self.files / CONNECTIONS_FILE).write_text(json.dumps(connections))
        path = self.files / "pipeline.yaml"
        path.write_text(json.dumps(merged(file, self.extra), ensure_ascii=False))
        loaded = load(path)
        assert isinstance(loaded, MirrorPipeline)
        return loaded

    def plane(self, tasks: Tasks | None = None) -> MirrorPlane:
        return MirrorPlane(self.pipeline, tasks=tasks)

    def run(self, tasks: Tasks | None = None, bounds: Bounds | None = None) -> MirrorReport:
        """Copy until caught up; one slot in this process unless `tasks` are given."""
        with self.plane(tasks) as plane:
            return run_mirror(plane, bounds=bounds)

    def remote(self, topic: str) -> str:
        return self.pipeline.remote_of(topic)

    @cached_property
    def source_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.source})

    @cached_property
    def target_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.target})

    def state(self) -> MirrorState:
        """What the log says."""
        with self.plane() as plane:
            assert plane.read_only()
            return plane.log.state

    def events(self, kind: type[Event]) -> list[Any]:
        """The events of a kind on the control topic, as a reader sees them."""
        values = support.consume(self.target, self.pipeline.control_topic)
        return [event for event in map(MIRROR.decode, filter(None, values)) if isinstance(event, kind)]

    def positions(self) -> dict[TopicPartition, Position]:
        """Of every partition of a remote topic that the log knows."""
        with closing(SourceGroup(self.pipeline.kafka.properties, self.pipeline.group)) as group:
            return group.positions(self.state().partitions)

    def copied(self, topic: str, partition: int = 0) -> list[Record]:
        """What a partition of a remote topic holds."""
        return records(self.target, self.remote(topic), partition)

    def assert_same(self, *topics: str) -> int:
        """Each topic and its remote topic hold the same, partition by partition; how many records that are."""
        number = 0
        for topic in topics or self.topics:
            for partition in partitions(self.source_admin, topic):
                expected = records(self.source, topic, partition)
                assert self.copied(topic, partition) == expected, (topic, partition)
                number += len(expected)
        return number


def records(bootstrap: str, topic: str, partition: int = 0) -> list[Record]:
    """All of a partition, as a reader of committed records sees them."""
    return [record(message) for message in support.messages(bootstrap, topic, partition=partition)]


def record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return message.key(), message.value(), tuple(headers), message.timestamp()[1]


def partitions(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)


def write(bootstrap: str, topic: str, rows: Iterable[Record], partition: int = 0, **conf: Any) -> None:
    """Append records as they are; a timestamp of 0 is taken for now by the client."""
    with producing(bootstrap, **conf) as producer:
        for key, value, headers, moment in rows:
            producer.produce(topic, value, key, partition, timestamp=moment, headers=list(headers))


@contextmanager
def producing(bootstrap: str, **conf: Any) -> Any:
    """A producer, whose records are there at the end."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **conf})
    yield producer
    assert producer.flush(TIMEOUT_S) == 0


def transact(bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0, *, commit: bool = True) -> None:
    """One transaction that ends so."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": support.unique("t"), "linger.ms": 5})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)
    support.until_stable(bootstrap, topic)


def add_partitions(admin: AdminClient, topic: str, number: int) -> None:
    """Give a topic more of them, and wait until brokers say so."""
    admin.create_partitions([NewPartitions(topic, number)])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) != number:
        assert time.monotonic() < deadline, f"{topic} has no {number} partitions"


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: value for key, value in extra.items() if isinstance(value, Mapping) and key in base}
    return {**base, **extra, **{key: merged(base[key], value) for key, value in both.items()}}

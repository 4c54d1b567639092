"""Mirrors between two brokers, and consumers that move from one to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Message, Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from tests import support

READS = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
QUICK = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 10}


def mirror_file(
    folder: Path, eu: Broker, us: Broker, topics: Sequence[str] = (), *, back: bool = False, **keys: Any
) -> Path:
    """The file of a mirror of `topics` from eu to us, or with `back` the other way; `keys` are of the file, and add to
    its sections.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clusters = {"eu": {"bootstrap.servers": eu.bootstrap}, "us": {"bootstrap.servers": us.bootstrap}}
    (folder / "connections.yaml").write_text(yaml.safe_dump({"deployment": "test", "kafka": clusters}))
    source, target = ("us", "eu") if back else ("eu", "us")
    document: dict[str, Any] = {
        "name": support.unique("mirror").replace("-", "_"),
        "kind": "mirror",
        "source": {"kafka": source, **({"topics": list(topics)} if topics else {})},
        "target": {"kafka": target},
        "batch": dict(support.SHORT_CUT),
    }
    for key, value in keys.items():
        document[key] = {**document.get(key, {}), **value} if isinstance(value, Mapping) else value
    file = folder / f"{document['name']}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def mirror(folder: Path, eu: Broker, us: Broker, topics: Sequence[str], **keys: Any) -> MirrorPipeline:
    """As `mirror_file`, loaded."""
    pipeline = load(mirror_file(folder, eu, us, topics, **keys))
    assert isinstance(pipeline, MirrorPipeline)
    return pipeline


class Member:
    """A consumer that is a member of `group`. Use as a context manager: leaving, it leaves the group."""

    def __init__(self, broker: Broker, group: str, topic: str, *, protocol: str = "classic") -> None:
        conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": group, **READS}
        conf |= {"group.protocol": "consumer"} if protocol == "consumer" else QUICK
        self._consumer, self._topic = Consumer(conf), topic

    def __enter__(self) -> Member:
        self._consumer.subscribe([self._topic])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, most: int | None = None) -> list[bytes | None]:
        """The next `most` records, or all that there are; committed behind them."""
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(found) < most if most is not None else not ended or len(ended) < len(self._consumer.assignment()):
            message = self._consumer.poll(30)
            assert message is not None, f"nothing came of {self._topic}"
            if message.error():
                ended.add(message.partition())
            else:
                found.append(message)
        if found:
            self._consumer.commit(asynchronous=False)
        return [message.value() for message in found]


def produce_transactions(broker: Broker, topic: str, sizes: Sequence[int], *, partitions: int = 1) -> list[bytes]:
    """Records by transactions of so many in each partition, every third of which is aborted. What was committed, no
    value twice.
    """
    name = support.unique("feed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    written: list[bytes] = []
    for number, size in enumerate(sizes):
        aborted = number % 3 == 2
        own = [b"%s %d %d" % (name.encode(), number, i) for i in range(size * partitions)]
        producer.begin_transaction()
        for i, each in enumerate(own):
            producer.produce(topic, each, b"%d" % i, partition=i % partitions)
        producer.flush()
        producer.abort_transaction(30) if aborted else producer.commit_transaction(30)
        written += [] if aborted else own
    support.until_stable(broker.bootstrap, topic)
    return written

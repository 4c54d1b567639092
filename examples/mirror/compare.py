"""What both clusters have, read by an ordinary consumer of committed records: it knows nothing of Calve."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from rich.table import Table

from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka.clients import LOGGER

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Content:
    """One partition: its records, the offsets that they and whatever else is there take, and a hash of all records."""

    records: int
    offsets: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A partition of a source topic and its copy."""

    topic: str
    partition: int
    source: Content
    remote: Content | None

    @property
    def equal(self) -> bool:
        remote = self.remote
        return remote is not None and (remote.records, remote.sha256) == (self.source.records, self.source.sha256)


def compare(source: str, target: str, topics: Iterable[str], cluster: str) -> list[Pair]:
    """Each partition of `topics`, with that of the remote topic, read from its beginning to its end."""
    pairs: list[Pair] = []
    for topic in topics:
        there, remote = contents(source, topic), contents(target, f"{cluster}.{topic}")
        pairs += [Pair(topic, number, content, remote.get(number)) for number, content in there.items()]
    return pairs


def contents(bootstrap: str, topic: str) -> dict[int, Content]:
    """By partition; empty for a topic that isn't there."""
    with reader(bootstrap) as consumer:
        found = consumer.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return {number: _content(consumer, topic, number) for number in sorted(found.partitions)} if found else {}


@contextmanager
def reader(bootstrap: str) -> Generator[Consumer]:
    """An ordinary consumer of committed records."""
    conf = {
        "bootstrap.servers": bootstrap,
        "group.id": "demo-compare",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(conf, logger=LOGGER)
    try:
        yield consumer
    finally:
        consumer.close()


def _content(consumer: Consumer, topic: str, partition: int) -> Content:
    records, sha256 = 0, hashlib.sha256()
    for message in messages(consumer, topic, partition):
        records += 1
        sha256.update(repr((message.key(), message.value(), message.headers(), message.timestamp())).encode())
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
    return Content(records, end - start, sha256.hexdigest())


def messages(consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
    """Those of a partition, from its beginning to its end. Raises Unreachable if that does not come."""
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while (message := consumer.poll(_TIMEOUT_S)) is not None:
        # The only event that is no record, of a partition that is there: its end.
        if message.error():
            return
        yield message
    raise Unreachable("the end of a partition did not come", hint="see whether the broker runs")


def shown(pairs: Iterable[Pair]) -> Table:
    """For people. `offsets` count aborted records and the transactions' ends as well."""
    table = Table(title="both clusters, read by a plain consumer", title_justify="left", title_style="bold")
    table.add_column("topic")
    for name in ("partition", "records", "offsets", "copied", "offsets"):
        table.add_column(name, justify="right")
    table.add_column("SHA-256 of keys, values, headers, times")
    table.add_column("equal")
    for pair in pairs:
        copied = (f"{pair.remote.records:,}", f"{pair.remote.offsets:,}") if pair.remote else ("", "")
        sums = dict.fromkeys(each.sha256[:16] for each in (pair.source, pair.remote) if each)
        own = (pair.topic, str(pair.partition), f"{pair.source.records:,}", f"{pair.source.offsets:,}")
        table.add_row(*own, *copied, ", ".join(sums), "yes" if pair.equal else "[red]no[/red]")
    return table

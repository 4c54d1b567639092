"""Source offsets in a Kafka topic, in the form of Kafka Connect: `["<connector>",{partition}]` → `{offset}`.

Connect writes what it made of a partition's fields in an order of its own. A key that is there is written as it was
found, whatever the order of its fields: another order would be another record to the compaction, and often another
partition. Who writes takes the partition of Java's producer (murmur2 of the key), where Connect looks for it.

Format: `OffsetStorageWriter` and `OffsetUtils` of Apache Kafka 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka.admin import AdminClient

from calve.sink_core.errors import ConfigError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S, Settings
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.kafka.source import describe_topics, end_offsets, high_watermarks, log_starts
from calve.sink_core.offsets import OffsetRange, Offsets, TopicPartition
from calve.sink_core.source.base import Stored
from calve.sink_core.source.flat_map import FlatMap

MIGRATED = FlatMap({"migrated": True})
"""The value of the sentinel, whose key names the connector alone."""


def key_of(connector: str, partition: FlatMap) -> bytes:
    """The key of a source partition that nobody has written before."""
    return f"[{_text(connector)},{partition.json}]".encode()


def sentinel_key(connector: str) -> bytes:
    """Of the record that says: the offsets of another topic are here, and need not be copied again."""
    return f"[{_text(connector)}]".encode()


def parsed_key(key: bytes | None) -> tuple[str, FlatMap | None] | None:
    """The connector and the source partition, None in its place for the sentinel; None for what is neither."""
    try:
        found: object = json.loads(key or b"")
        match cast(Any, found):
            case [str(connector)]:
                return connector, None
            case [str(connector), dict(partition)]:
                return connector, FlatMap(cast(Mapping[str, Any], partition))
            case _:
                return None
    except (ValueError, ConfigError):
        return None


class OffsetsTopic:
    """The source offsets of one connector, as its topic has them; `refresh` reads on.

    `stored` are those that are there, `keys` the keys as they were found, `ends` where the next refresh begins.
    `migrated`: the sentinel is there.
    """

    def __init__(self, settings: Settings, topic: str, connector: str, *, admin: AdminClient, group: str) -> None:
        self.topic = topic
        self.stored: dict[FlatMap, FlatMap] = {}
        self.keys: dict[FlatMap, bytes] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.migrated = False
        self._settings, self._connector, self._admin, self._group = settings, connector, admin, group

    def refresh(self, *, settled: bool = True) -> Stored:
        """Read on to what is the end now, transactions included that are open: whoever may have one is fenced before.
        Unless `settled`, to where the first one is open.

        Raises Unreachable if one stays open, ConfigError if there is no such topic.
        """
        if not self.ends:
            topic = describe_topics(self._admin, [self.topic], timeout_s=ADMIN_TIMEOUT_S)[self.topic]
            self.ends = log_starts(self._admin, topic.all_partitions, timeout_s=ADMIN_TIMEOUT_S)
        ends = (high_watermarks if settled else end_offsets)(self._admin, self.ends, timeout_s=ADMIN_TIMEOUT_S)
        ranges = [OffsetRange(*at, start, ends[at]) for at, start in self.ends.items() if start < ends[at]]
        for key, value in self._records(ranges):
            self._take(key, value)
        self.ends = ends
        return self.stored

    def touched_since(self, ends: Offsets) -> set[FlatMap]:
        """The source partitions whose offsets anybody has tried to write since, whatever became of it: by these a task
        finds that a former try of it came further than the plan knows, and waits for nobody's transaction.
        """
        now = high_watermarks(self._admin, ends, timeout_s=ADMIN_TIMEOUT_S)
        ranges = [OffsetRange(*at, start, now[at]) for at, start in ends.items() if start < now[at]]
        found = (parsed_key(key) for key, _ in self._records(ranges, committed=False))
        return {each[1] for each in found if each and each[0] == self._connector and each[1] is not None}

    def _records(
        self, ranges: Sequence[OffsetRange], *, committed: bool = True
    ) -> Iterable[tuple[bytes | None, bytes | None]]:
        if not ranges:
            return
        with RangeReader(self._settings, ranges, group=self._group, committed=committed) as reader:
            for messages in reader:
                yield from zip(messages.keys, messages.values, strict=True)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        found = parsed_key(key)
        if found is None or found[0] != self._connector:
            return
        _, partition = found
        if partition is None:
            self.migrated = value is not None
            return
        self.keys[partition] = key or b""
        if value is None:
            self.stored.pop(partition, None)
            return
        try:
            self.stored[partition] = FlatMap.parsed(value)
        except ConfigError:
            # As Connect does it: what is no offset stands for none.
            return


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

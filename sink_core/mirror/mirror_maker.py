"""What MirrorMaker 2 has on the target: its workers, the transactional ids of its tasks, and its offsets.

It runs on Connect, whose worker keeps offsets in a compacted topic: of each source partition that of the record copied
*last*, while ours is the next. Names are those of a MirrorMaker of its own (`connect-mirror-maker`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.slots.leading import FENCED_AT_ONCE
from calve.sink_core.control.slots.slot import TRANSACTION_S
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.kafka.source import describe_topics, end_offsets, existing_topic_ids, high_watermarks, log_starts
from calve.sink_core.mirror import compacted
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.offsets import OffsetRange, Offsets, Position, TopicPartition, after
from calve.sink_core.timing import Deadline

CONNECTOR = "MirrorSourceConnector"
PARTITIONS = 25
"""Of the topic of offsets where we make it, as Connect does."""

_COUNTS = {f"commit-{CONNECTOR}".encode(): "tasks", f"tasks-fencing-{CONNECTOR}".encode(): "task-count"}
_FENCES = f"tasks-fencing-{CONNECTOR}".encode()
_SETTLED_S = 60.0
_POLL_S = 0.05


class MirrorMaker:
    """The one that copies from the mirror's source to its target."""

    def __init__(self, plane: MirrorPlane) -> None:
        self._plane = plane
        self.cluster = plane.pipeline.config.source_alias
        self.group = f"{self.cluster}-mm2"
        """Of its workers."""
        self.offsets = f"mm2-offsets.{self.cluster}.internal"
        self.configs = f"mm2-configs.{self.cluster}.internal"

    def is_at_work(self) -> bool:
        """Whether it has workers. No client tells that of a group of Connect's; but the coordinator refuses an offset
        of it while it has members, which Connect itself never puts there, and which expires.
        """
        settings, probe = self._plane.pipeline.kafka.properties, TopicPartition(self.offsets, 0)
        if not existing_topic_ids(self._plane.admin, [self.offsets], timeout_s=ADMIN_TIMEOUT_S):
            return False
        with closing(SourceGroup(settings, self.group)) as group:
            group.positions([probe])
            return not group.put({probe: Position(0, "")})

    def tasks(self) -> tuple[int, bool]:
        """The most tasks that it had as far as its topic of configurations goes back, at least one; and whether it ran
        with exactly-once: only then its tasks are counted for fencing.
        """
        counts, exactly_once = [1], False
        for key, value in self._records(self.configs, settled=False):
            if key in _COUNTS and isinstance(parsed := _parsed(value), dict):
                counts.append(int(parsed.get(_COUNTS[key], 0)))
                exactly_once = exactly_once or key == _FENCES
        return max(counts), exactly_once

    def fence(self, tasks: int) -> None:
        """Let none of so many tasks commit any more."""
        settings = self._plane.pipeline.kafka.properties

        def fence(task: int) -> None:
            producer = clients.transactional_producer(settings, f"{self.group}-{CONNECTOR}-{task}")
            with reported(f"fencing task {task} of MirrorMaker 2"):
                clients.await_broker(producer, self.offsets, TRANSACTION_S)
                producer.init_transactions(TRANSACTION_S)

        with ThreadPoolExecutor(max_workers=min(FENCED_AT_ONCE, tasks)) as pool:
            list(pool.map(fence, range(tasks)))

    def positions(self, *, settled: bool = False) -> dict[TopicPartition, int]:
        """By source partition the next offset to copy. `settled`, behind a fence, waits for what its tasks had begun to
        commit.
        """
        found: dict[TopicPartition, int] = {}
        for key, value in self._records(self.offsets, settled=settled):
            if (at := self._partition_of(key)) is None:
                continue
            match _parsed(value):
                case {"offset": int(offset)}:
                    found[at] = after(offset)
                case _:
                    found.pop(at, None)
        return found

    def write(self, positions: Offsets) -> None:
        """Have it go on at these offsets. It has nothing of a partition that it begins with: a last record there is
        none.
        """
        compacted.ensure(self._plane, {self.offsets: PARTITIONS})
        records: Mapping[bytes, bytes | None] = {
            self._key(at): _json({"offset": offset - 1}) if offset else None for at, offset in positions.items()
        }
        compacted.write(self._plane, self.offsets, records)

    def _key(self, at: TopicPartition) -> bytes:
        """Its bytes decide on the partition, so the order of fields is Connect's."""
        return _json([CONNECTOR, {"cluster": self.cluster, "partition": at.partition, "topic": at.topic}])

    def _partition_of(self, key: bytes) -> TopicPartition | None:
        """None if the key is not of a source partition of this cluster."""
        match _parsed(key):
            case [name, {"cluster": cluster, "partition": int(partition), "topic": str(topic)}]:
                return TopicPartition(topic, partition) if (name, cluster) == (CONNECTOR, self.cluster) else None
            case _:
                return None

    def _records(self, topic: str, *, settled: bool) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys and values, of each partition in their order; none if there is no such topic."""
        admin, pipeline = self._plane.admin, self._plane.pipeline
        if not existing_topic_ids(admin, [topic], timeout_s=ADMIN_TIMEOUT_S):
            return
        partitions = describe_topics(admin, [topic], timeout_s=ADMIN_TIMEOUT_S)[topic].all_partitions
        starts = log_starts(admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
        ends = self._ends(partitions, settled=settled)
        ranges = [OffsetRange(*at, starts[at], ends[at]) for at in partitions if ends[at] > starts[at]]
        if not ranges:
            return
        with RangeReader(pipeline.kafka.properties, ranges, group=pipeline.group) as reader:
            for messages in reader:
                for key, value in zip(messages.keys, messages.values, strict=True):
                    yield key or b"", value

    def _ends(self, partitions: Sequence[TopicPartition], *, settled: bool) -> Offsets:
        """Behind a fence everything that was written is decided, but its marker may still be on its way."""
        admin, deadline = self._plane.admin, Deadline.after(_SETTLED_S)
        wanted = high_watermarks(admin, partitions, timeout_s=ADMIN_TIMEOUT_S) if settled else {}
        while True:
            ends = end_offsets(admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
            if all(ends[at] >= end for at, end in wanted.items()):
                return ends
            if deadline.passed:
                raise Unreachable("a transaction of MirrorMaker 2 stays open", code=Code.OPEN_TRANSACTION)
            time.sleep(_POLL_S)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(text: bytes | None) -> Any:
    with suppress(ValueError):
        return json.loads(text or b"null")
    return None

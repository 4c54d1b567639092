"""A mirror with known records: written at the source as odd as they come, read back on both sides."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.kafka.compat import PARTITION_EOF
from calve.sink_core.kafka.source import end_offsets, high_watermarks
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.e2e.faults.slots.processes import NONE, TRIES, Run, Strike, run_to_end
from tests.mirror_flow import MirrorFlow, Record, record
from tests.support import TIMEOUT_S

KEYS = (None, b"", b"k", b"\0\xff")
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("b", b"1"), ("a", b"2"), ("b", b"1")),
    (("", b""), ("null", None), ("é", bytes(range(256)))),
)
TIMES = (1, -5_000, 1_700_000_000_000, 2**50)
PADDING = b"x" * 150
ANY_TIME = {name: str(2**63 - 1) for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")}


@dataclass(frozen=True, slots=True)
class Difference:
    """Records that one side has more often than the other, and partitions whose order is another."""

    lost: int
    twice: int
    disordered: int

    @property
    def none(self) -> bool:
        return not (self.lost or self.twice or self.disordered)


@dataclass
class Side:
    """Reads on where it stopped, as a consumer of committed records does."""

    bootstrap: str
    topic: str
    partitions: int
    next: dict[int, int] = field(default_factory=dict[int, int])

    def read(self) -> dict[int, list[Record]]:
        self._await_decided()
        found: dict[int, list[Record]] = {number: [] for number in range(self.partitions)}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": support.unique("read"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([KafkaPartition(self.topic, number, self.next.get(number, 0)) for number in found])
        left = set(found)
        while left:
            messages = consumer.consume(10_000, 1.0)
            for message in messages:
                number = message.partition() or 0
                if (error := message.error()) is None:
                    found[number].append(record(message))
                    self.next[number] = (message.offset() or 0) + 1
                else:
                    assert error.code() == PARTITION_EOF, error
                    left.discard(number)
        consumer.close()
        return found

    def _await_decided(self) -> None:
        """A transaction's end is there a moment after its producer has heard of it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        all_of = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while end_offsets(admin, all_of, timeout_s=TIMEOUT_S) != high_watermarks(admin, all_of, timeout_s=TIMEOUT_S):
            assert time.monotonic() < deadline, f"a transaction is open on {self.topic}"
            time.sleep(0.05)


@dataclass
class MirrorWorld:
    """A mirror of one topic of `partitions`, on clusters that others may use too."""

    directory: Path
    source: str
    target: str
    chance: random.Random
    partitions: int = 12
    records: int = 0
    """Committed at the source."""

    @cached_property
    def mirror(self) -> MirrorFlow:
        topic = support.create_topic(self.source, support.unique("faults"), self.partitions, ANY_TIME)
        # Small pieces and shares, so that every slot has several transactions.
        extra = {"batch": {"min_task_bytes": "1KiB"}, "transaction": {"max_bytes": "256KiB"}}
        return MirrorFlow.create(self.directory, self.source, self.target, topic, extra=extra)

    @property
    def topic(self) -> str:
        return self.mirror.topics[0]

    @cached_property
    def _sides(self) -> tuple[Side, Side]:
        remote = self.mirror.remote(self.topic)
        return Side(self.source, self.topic, self.partitions), Side(self.target, remote, self.partitions)

    @cached_property
    def _producers(self) -> tuple[Producer, Producer]:
        conf = {"bootstrap.servers": self.source, "linger.ms": 20, "compression.type": "lz4"}
        transactional = Producer({**conf, "transactional.id": support.unique("faults")})
        transactional.init_transactions(TIMEOUT_S)
        return Producer(conf), transactional

    def produce(self, number: int) -> None:
        """About so many records, in transactions and without; some transactions are aborted, others nearly empty."""
        plain, transactional = self._producers
        left = number
        while left > 0:
            size = min(left, self.chance.choice((1, 7, number // 3 + 1)))
            left -= size
            kind = self.chance.random()
            producer = plain if kind < 0.4 else transactional
            if producer is transactional:
                producer.begin_transaction()
            self._append(producer, size)
            assert producer.flush(TIMEOUT_S) == 0
            if producer is plain:
                self.records += size
            elif kind < 0.8:
                producer.commit_transaction(TIMEOUT_S)
                self.records += size
            else:
                producer.abort_transaction(TIMEOUT_S)

    def _append(self, producer: Producer, size: int) -> None:
        random_int, topic = self.chance.randrange, self.topic
        for place in range(size):
            odd = random_int(64)
            value = (None if odd == 1 else b"") if odd < 2 else b"%d-%d" % (random_int(2**48), place) + PADDING
            producer.produce(
                topic,
                value,
                KEYS[odd % 4],
                random_int(self.partitions),
                timestamp=TIMES[odd % 4],
                headers=list(HEADERS[odd % 3]),
            )
            if place % 1_000 == 999:
                producer.poll(0)

    def start(self, slots: int, strike: Strike = NONE, tries: int = 1) -> Run:
        notes = self.directory / support.unique("run")
        return Run.start(self.mirror.pipeline.path, notes, slots, strike, tries)

    def run_to_end(self, slots: int, tries: int = TRIES) -> float:
        """Seconds until a run that nobody disturbs has ended well."""
        return run_to_end(lambda: self.start(slots), tries)

    def read_from_the_beginning(self) -> None:
        """The next difference is of all there is."""
        for side in self._sides:
            side.next.clear()

    def difference(self) -> Difference:
        """Of what came to either side since it was asked last."""
        there, here = (side.read() for side in self._sides)
        return compared(there, here)


def compared(there: Mapping[int, list[Record]], here: Mapping[int, list[Record]]) -> Difference:
    lost = twice = disordered = 0
    for number, expected in there.items():
        if here[number] == expected:
            continue
        source, target = Counter(expected), Counter(here[number])
        missing, more = (source - target).total(), (target - source).total()
        lost, twice, disordered = lost + missing, twice + more, disordered + (not missing and not more)
    return Difference(lost, twice, disordered)

"""Mirrors, beside MirrorMaker 2 with exactly-once: `python -m bench.mirror`.

Records per CPU-second of all processes but the two brokers. After each copy its records are counted by partition.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench import mirror_maker
from bench.figure import Figure
from bench.measure import Measured, inside, measured
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.reading import TIMEOUT_S, end, messages, reader
from bench.scenario import Row
from bench.shapes import MIRRORED
from bench.workload import PARTITIONS, fill
from calve.orchestration.local import broker
from calve.sink_core.jars import resolve
from calve.sink_core.kafka import clients

TAIL = 64
"""Offsets at the end of a partition among which its last record is: behind it are only the ends of transactions."""

STEADY = Row("mirror", "values of 279 bytes, lz4, the run alone", "mm2", 6.0)
KEYED = Row("mirror-keyed", "the same with a key and a header of 16 bytes", "mirror")
FLOOR = Row("mirror-consume", "the floor: librdkafka's consume alone", "mirror")
COLD = Row("mirror-cold", "`calve run` from its start to its end", "mm2-cold", 3.5)
PEER = Row("mm2", "MirrorMaker 2 4.3.1 with exactly-once, 2 tasks, the second half")
PEER_COLD = Row("mm2-cold", "the same from its start to the last record")


@dataclass(frozen=True, slots=True)
class Copies:
    """Both clusters, a folder, and the topics: of `records` values, of as many with keys, and of twice as many."""

    source: str
    target: str
    directory: Path
    records: int
    values: str
    keyed: str
    backlog: str

    def steady(self, topic: str) -> Measured:
        """A run in a process that has started."""
        with _Remote(self, topic) as remote:
            found = inside("bench.mirror_inside", str(remote.pipeline()))
            remote.prove()
            return found

    def cold(self) -> Measured:
        with _Remote(self, self.backlog) as remote:
            calve = Path(sys.executable).parent / "calve"
            found = measured([str(calve), "run", str(remote.pipeline()), "--json"], 2 * self.records)
            remote.prove()
            return found

    def floor(self) -> Measured:
        return inside("bench.mirror_inside", "--consume", self.source, self.values, str(self.records))

    def peer(self) -> Sequence[Measured]:
        """The second half of its run, and all of it."""
        with _Remote(self, self.backlog, cluster="source") as remote:
            folder = self.directory / f"mm2-{uuid.uuid4().hex[:8]}"
            found = mirror_maker.copy(self.source, self.target, self.backlog, folder, 2 * self.records, remote.copied)
            remote.prove()
            return found


class _Remote:
    """The copy of a topic while there is one: it is deleted afterwards."""

    def __init__(self, copies: Copies, topic: str, cluster: str = "") -> None:
        self._copies, self._source = copies, topic
        self._cluster = cluster or f"bench_{uuid.uuid4().hex[:8]}"
        self.topic = f"{self._cluster}.{topic}"
        self._admin = AdminClient({"bootstrap.servers": copies.target}, logger=clients.LOGGER)
        self._reader = reader(copies.target)
        self._ahead = reader(copies.target, isolation="read_uncommitted")
        self._all = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        source, read = reader(copies.source), [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._counts = [end(source, at) for at in read]
        self._last = [_last(source, at) for at in read]
        source.close()

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._ahead.close()
        if self.topic in self._admin.list_topics(timeout=TIMEOUT_S).topics:
            self._admin.delete_topics([self.topic])[self.topic].result(TIMEOUT_S)

    def pipeline(self) -> Path:
        """The file of a mirror that has never run."""
        directory = self._copies.directory / self._cluster
        directory.mkdir()
        kafka = {"source": self._copies.source, "target": self._copies.target}
        connections = {
            "deployment": "bench",
            "kafka": {name: {"bootstrap.servers": address} for name, address in kafka.items()},
            "spark": {"here": {"master": "local[*]"}},
        }
        pipeline = {
            "name": self._cluster,
            "kind": "mirror",
            "source": {"kafka": "source", "cluster": self._cluster, "topics": [self._source]},
            "target": {"kafka": "target"},
        }
        (directory / "connections.yaml").write_text(yaml.safe_dump(connections))
        file = directory / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline))
        return file

    def copied(self) -> int:
        """About how many records are there, the ends of a few transactions among them; all only if each last one is
        committed. Others count before that: what is to become visible has been worked for.
        """
        if self.topic not in self._admin.list_topics(timeout=TIMEOUT_S).topics:
            return 0
        ends = [end(self._ahead, at) for at in self._all]
        complete = all(found >= count for found, count in zip(ends, self._counts, strict=True)) and all(
            _last(self._reader, at) == last for at, last in zip(self._all, self._last, strict=True)
        )
        return sum(self._counts) if complete else min(sum(ends), sum(self._counts) - 1)

    def prove(self) -> None:
        """Raises SystemExit if a partition has not as many records as its source."""
        found = [sum(1 for _ in messages(self._reader, at, 0)) for at in self._all]
        if found != self._counts:
            raise SystemExit(f"{self.topic} has {found} records in its partitions, and not {self._counts}")


def _last(consumer: Consumer, at: TopicPartition) -> bytes | None:
    """The value of the last record among the last offsets."""
    return [None, *(each.value() for each in messages(consumer, at, max(0, end(consumer, at) - TAIL)))][-1]


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    resolve(mirror_maker.MIRROR_MAKER)
    target = place.scratch / "target"
    try:
        copies = Copies(
            place.bootstrap,
            broker.start(target).bootstrap,
            place.scratch,
            options.records,
            fill(place.bootstrap, options.records, MIRRORED),
            fill(place.bootstrap, options.records, MIRRORED, keyed=True),
            fill(place.bootstrap, 2 * options.records, MIRRORED),
        )

        def of_one(run: Callable[[], Measured]) -> Callable[[], Sequence[Measured]]:
            return lambda: [run()]

        scenarios: list[tuple[Sequence[Row], Callable[[], Sequence[Measured]]]] = [
            ([PEER, PEER_COLD], copies.peer),
            ([STEADY], of_one(partial(copies.steady, copies.values))),
            ([COLD], of_one(copies.cold)),
            ([KEYED], of_one(partial(copies.steady, copies.keyed))),
            ([FLOOR], of_one(copies.floor)),
        ]
        for rows, run in scenarios:
            yield Step(", ".join(row.name for row in rows), partial(_medians, rows, run, options.runs))
    finally:
        broker.stop(target)


def _medians(rows: Sequence[Row], run: Callable[[], Sequence[Measured]], runs: int) -> Iterable[Figure]:
    """Of each row the run with the median rate."""
    done = [run() for _ in range(runs)]
    for row, each in zip(rows, zip(*done, strict=True), strict=True):
        middle = statistics.median_low(m.records_per_cpu_s for m in each)
        m = next(m for m in each if m.records_per_cpu_s == middle)
        say(f"  {row.name}: {', '.join(f'{m.records_per_cpu_s:,.0f}' for m in each)} records per CPU-second")
        yield row.figure(m)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records", type=int, default=2_000_000, metavar="N", help="records copied; cold twice as many (2,000,000)"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")


PART = Part(
    "mirror",
    "Copies per CPU-second, beside MirrorMaker 2.",
    _options,
    _steps,
    smoke="--records 40000 --runs 1",
    keeps_topics=True,
)

if __name__ == "__main__":
    sys.exit(alone(PART))

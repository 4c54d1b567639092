"""Mirrors, beside MirrorMaker 2 with exactly-once: `python -m bench.mirror`.

Records per CPU-second of all processes but the two brokers. After each copy its records are counted by partition.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench import mirror_maker
from bench.figure import Figure
from bench.measure import ROOT, Measured, measured
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.scenario import Row
from bench.shapes import MIRRORED
from bench.workload import PARTITIONS, fill
from calve.orchestration.local import broker
from calve.sink_core.jars import resolve
from calve.sink_core.kafka import clients

TIMEOUT_S = 60.0
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
            found = _inside(str(remote.pipeline()))
            remote.prove()
            return found

    def cold(self) -> Measured:
        with _Remote(self, self.backlog) as remote:
            calve = Path(sys.executable).parent / "calve"
            found = measured([str(calve), "run", str(remote.pipeline()), "--json"], 2 * self.records)
            remote.prove()
            return found

    def floor(self) -> Measured:
        return _inside("--consume", self.source, self.values, str(self.records))

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
        self._reader = _reader(copies.target)
        self._ahead = _reader(copies.target, isolation="read_uncommitted")
        source = _reader(copies.source)
        self._counts = [_end(source, topic, number) for number in range(PARTITIONS)]
        self._last = [_last(source, topic, number) for number in range(PARTITIONS)]
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
        ends = [_end(self._ahead, self.topic, number) for number in range(PARTITIONS)]
        complete = all(end >= count for end, count in zip(ends, self._counts, strict=True)) and all(
            _last(self._reader, self.topic, number) == last for number, last in enumerate(self._last)
        )
        return sum(self._counts) if complete else min(sum(ends), sum(self._counts) - 1)

    def prove(self) -> None:
        """Raises SystemExit if a partition has not as many records as its source."""
        found = [_records(self._reader, self.topic, number) for number in range(PARTITIONS)]
        if found != self._counts:
            raise SystemExit(f"{self.topic} has {found} records in its partitions, and not {self._counts}")


def _inside(*arguments: str) -> Measured:
    command = [sys.executable, "-m", "bench.mirror_inside", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _reader(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    conf = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    return Consumer({**conf, "isolation.level": isolation, "enable.partition.eof": True}, logger=clients.LOGGER)


def _end(reader: Consumer, topic: str, partition: int) -> int:
    """The offset behind the last one that the reader sees."""
    return reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)[1]


def _last(reader: Consumer, topic: str, partition: int) -> bytes | None:
    """The value of the last record among the last offsets."""
    return [None, *_values(reader, topic, partition, max(0, _end(reader, topic, partition) - TAIL))][-1]


def _records(reader: Consumer, topic: str, partition: int) -> int:
    return sum(1 for _ in _values(reader, topic, partition, 0))


def _values(reader: Consumer, topic: str, partition: int, start: int) -> Iterator[bytes | None]:
    reader.assign([TopicPartition(topic, partition, start)])
    while (message := reader.poll(TIMEOUT_S)) is not None:
        if message.error():
            return
        yield message.value()


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

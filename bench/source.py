"""Sources, beside Debezium with exactly-once: `python -m bench.source`.

The log of a PostgreSQL database into a topic: records per CPU-second of all processes but broker and database; what the
database used stands beside it. All readers have the same log before them. What they sent is counted by operation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from bench import debezium
from bench.figure import Figure
from bench.measure import Measured, inside, measured
from bench.orders import LAST_ID, PUBLICATION, SCHEMA, TABLE, Orders, orders
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.reading import TIMEOUT_S, end, messages, reader
from bench.scenario import Row
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import NewTopic

PARTITIONS = 4
TAIL = 64
"""Offsets at the end of a partition among which its last record is: behind it are only the ends of transactions."""

AIM = 2.0

STEADY = Row("log", "the log of PostgreSQL, JSON, the run alone", "debezium", AIM)
COLD = Row("log-cold", "`calve run` from its start to its end", "debezium-cold")
PEER = Row("debezium", f"Debezium {debezium.VERSION} with exactly-once, the second half")
PEER_COLD = Row("debezium-cold", "the same from its worker's start to the last record")


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader took, and CPU-seconds of the database meanwhile; None where these are of another time."""

    of: Measured
    database_s: float | None


@dataclass(frozen=True, slots=True)
class Sources:
    """The broker, the database, and a folder."""

    bootstrap: str
    orders: Orders
    directory: Path

    def steady(self) -> Sequence[Read]:
        """A run in a process that has started."""
        return self._calve(lambda file, _records: inside("bench.source_inside", str(file)))

    def cold(self) -> Sequence[Read]:
        calve = str(Path(sys.executable).with_name("calve"))
        return self._calve(lambda file, records: measured([calve, "run", str(file), "--json"], records))

    def peer(self) -> Sequence[Read]:
        """The second half of its run, and all of it."""
        with self.orders.slot() as slot, _Topic(self.bootstrap, self.orders) as topic:
            reader = debezium.Debezium(
                self.bootstrap, self.directory / topic.of, self.orders.server.port, slot, topic.of
            )
            began_s = self.orders.cpu_s()
            steady, whole = reader.read(topic.records, topic.sent)
            database_s = self.orders.cpu_s() - began_s
            topic.prove()
            return [Read(steady, None), Read(whole, database_s)]

    def _calve(self, run: Callable[[Path, int], Measured]) -> Sequence[Read]:
        with self.orders.slot() as slot, _Topic(self.bootstrap, self.orders) as topic:
            file = self._pipeline(topic.of, slot)
            began_s = self.orders.cpu_s()
            done = run(file, topic.records)
            database_s = self.orders.cpu_s() - began_s
            topic.prove()
            return [Read(done, database_s)]

    def _pipeline(self, name: str, slot: str) -> Path:
        """The file of a source that has never run."""
        directory = self.directory / name
        directory.mkdir()
        connections = {
            "deployment": "bench",
            "kafka": {"here": {"bootstrap.servers": self.bootstrap}},
            "database": {"here": {"url": self.orders.url}},
        }
        log = {"slot": slot, "publication": PUBLICATION, "snapshot": "never"}
        pipeline = {
            "name": name,
            "kind": "source",
            "source": {"database": "here", "log": log},
            "target": {"kafka": "here"},
        }
        (directory / "connections.yaml").write_text(yaml.safe_dump(connections))
        file = directory / "pipeline.yaml"
        file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
        return file


class _Topic:
    """What a reader called `of` sends to while there is one: it is deleted afterwards."""

    def __init__(self, bootstrap: str, orders: Orders) -> None:
        self.of = f"bench_{uuid.uuid4().hex[:8]}"
        self._name = f"{self.of}.{SCHEMA}.{TABLE}"
        self._operations = orders.operations
        self.records = self._operations.total()
        self._admin = AdminClient({"bootstrap.servers": bootstrap}, logger=clients.LOGGER)
        self._reader = reader(bootstrap)
        self._ahead = reader(bootstrap, isolation="read_uncommitted")

    def __enter__(self) -> _Topic:
        self._admin.create_topics([NewTopic(self._name, PARTITIONS, 1)])[self._name].result(TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._ahead.close()
        self._admin.delete_topics([self._name])[self._name].result(TIMEOUT_S)

    def sent(self) -> int:
        """About how many records are there, the ends of a few transactions among them; all only if the last one is
        committed. Others count before that: what is to become visible has been worked for.
        """
        ends = sum(end(self._ahead, self._at(number)) for number in range(PARTITIONS))
        return self.records if ends >= self.records and self._is_last_there() else min(ends, self.records - 1)

    def prove(self) -> None:
        """Raises SystemExit if the topic has not as many records of each operation as the log."""
        found = Counter(
            "" if (value := message.value()) is None else str(json.loads(value)["op"])
            for at in map(self._at, range(PARTITIONS))
            for message in messages(self._reader, at, 0)
        )
        if found != self._operations:
            raise SystemExit(f"{self._name} has {dict(found)}, and not {dict(self._operations)}")

    def _is_last_there(self) -> bool:
        """Nothing is behind it in the log, and what was before it is committed with it or earlier."""
        return any(
            json.loads(message.key() or b"{}").get("id") == LAST_ID
            for at in map(self._at, range(PARTITIONS))
            for message in messages(self._reader, at, max(0, end(self._reader, at) - TAIL))
        )

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._name, partition)


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    debezium.fetch()
    with orders(options.events) as changed:
        sources = Sources(place.bootstrap, changed, place.scratch)
        scenarios: list[tuple[Sequence[Row], Callable[[], Sequence[Read]]]] = [
            ([PEER, PEER_COLD], sources.peer),
            ([STEADY], sources.steady),
            ([COLD], sources.cold),
        ]
        for rows, run in scenarios:
            yield Step(", ".join(row.name for row in rows), partial(_medians, rows, run, options.runs))


def _medians(rows: Sequence[Row], run: Callable[[], Sequence[Read]], runs: int) -> Iterable[Figure]:
    """Of each row the run with the median rate."""
    done = [run() for _ in range(runs)]
    for row, each in zip(rows, zip(*done, strict=True), strict=True):
        middle = statistics.median_low(read.of.records_per_cpu_s for read in each)
        found = next(read for read in each if read.of.records_per_cpu_s == middle)
        say(f"  {row.name}: {', '.join(f'{read.of.records_per_cpu_s:,.0f}' for read in each)} records per CPU-second")
        database = found.database_s
        yield row.figure(found.of, {"CPU-s of the database": round(database, 1)} if database is not None else {})


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=500_000, metavar="N", help="changes of rows in the log (500,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")


PART = Part(
    "source",
    "Changes of a database's rows per CPU-second, beside Debezium.",
    _options,
    _steps,
    smoke="--events 20000 --runs 1",
)

if __name__ == "__main__":
    sys.exit(alone(PART))

"""What a task holds at its peak, whatever it reads and writes: `python -m bench.memory`.

Each row is a whole run whose tasks run in its process, one after the other, and whose peak resident memory is that of a
task with all that a driver needs besides (catalog, control topic). Each thing that might grow is there in a small and
in a large size: it is bounded if the second needs hardly more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.figure import Aim, Figure
from bench.measure import ROOT
from bench.part import Part, Place, Step, alone
from bench.proof import prove
from bench.workload import fill, write_pipeline
from calve.sink_core.config.load import load
from tests import support
from tests.pipelines import Flow

BOUND_MIB = 768
"""What no task may exceed, whatever it reads and writes; `tests/integration/test_memory.py` holds it to that."""
MB = 1_000_000
SPREAD = 300_000
"""Records of a kilobyte: several times what a task gathers, and long after that its peak is reached."""
QUEUED = 50_000
ONE_TASK = {"batch": {"min_task_bytes": "64GiB", "max_bytes": "64GiB"}}
"""However much there is, a single task reads it."""


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    for name, case in CASES.items():
        for size in getattr(options, name):
            yield Step(f"{name} {size:,}", partial(_figure, place, name, case, size))


def _figure(place: Place, name: str, case: Case, size: int) -> Iterator[Figure]:
    file = case(place.bootstrap, place.scratch, size)
    peak = peak_mib(file)
    prove(load(file))
    yield Figure(f"{name}-{size}", f"{size:,} {WHAT[name]}", peak, "MiB", Aim(BOUND_MIB, at_most=True))


def peak_mib(file: Path) -> int:
    """Of the process that runs the pipeline to its end."""
    command = [sys.executable, "-m", "tests.integration.in_one_process", str(file)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return round(float(done.stdout))


def _records(bootstrap: str, directory: Path, size: int) -> Path:
    """Events of `bench.workload` into one file."""
    file = write_pipeline(directory / f"records-{size}", bootstrap, fill(bootstrap, size))
    file.write_text(file.read_text() + json.dumps(ONE_TASK)[1:-1].replace('"batch"', "batch") + "\n")
    return file


def _megabyte_records(bootstrap: str, directory: Path, size: int) -> Path:
    """As many records of a megabyte each, as large as producers send without being told to."""
    return _filled(
        bootstrap, directory, (json.dumps({"id": i, "text": f"{i:07}" * (MB // 7 - 100)}).encode() for i in range(size))
    )


def _kafka_partitions(bootstrap: str, directory: Path, size: int) -> Path:
    """100 kB from each of as many partitions."""
    topic = support.create_topic(bootstrap, support.unique("memory"), size)
    flow = Flow.create(directory, bootstrap, topic, extra=ONE_TASK)
    values = [json.dumps({"id": i, "text": "x" * 960}).encode() for i in range(100)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for partition in range(size):
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.poll(0)
        if len(producer) > QUEUED:
            producer.flush()
    assert producer.flush(60) == 0
    return flow.pipeline.path


def partitions(bootstrap: str, directory: Path, size: int, records: int = SPREAD) -> Path:
    """`records` of a kilobyte into as many partitions of a table, all written to all the time."""
    by_text = {"columns": {"id": "long", "p": "int", "text": "string"}, "partition_by": ["p"]}
    values = (json.dumps({"id": i, "p": i % size, "text": "x" * 960}).encode() for i in range(records))
    return _filled(bootstrap, directory, values, auto_create=by_text)


def tables(bootstrap: str, directory: Path, size: int, records: int = SPREAD) -> Path:
    """The same into as many tables."""
    by_field = {"name": "db.t_{value}", "name_from": {"field": "k", "allow": "[0-9]+", "max_tables": 10_000}}
    created = {"auto_create": {"columns": {"id": "long", "k": "string", "text": "string"}}}
    values = (json.dumps({"id": i, "k": str(i % size), "text": "x" * 960}).encode() for i in range(records))
    return _filled(bootstrap, directory, values, extra={"tables": [by_field | created]})


def _filled(
    bootstrap: str, directory: Path, values: Iterator[bytes], extra: Mapping[str, Any] | None = None, **options: Any
) -> Path:
    topic = support.create_topic(bootstrap, support.unique("memory"), 1, {"max.message.bytes": str(4 * MB)})
    flow = Flow.create(directory, bootstrap, topic, extra=ONE_TASK | dict(extra or {}), **options)
    support.produce(bootstrap, topic, values)
    return flow.pipeline.path


Case = Callable[[str, Path, int], Path]
"""Of a broker's address, a folder and a size: the file of a pipeline that has all of it to read."""
CASES: Mapping[str, Case] = {
    "records": _records,
    "megabytes": _megabyte_records,
    "kafka_partitions": _kafka_partitions,
    "partitions": partitions,
    "tables": tables,
}
WHAT = {
    "records": "records of 270 bytes in a task",
    "megabytes": "records of a megabyte",
    "kafka_partitions": "partitions of a topic that a task reads",
    "partitions": "partitions of a table that it writes",
    "tables": "tables that it writes",
}
SIZES = {
    "records": [1_000, 2_000_000],
    "megabytes": [150],
    "kafka_partitions": [1_000],
    "partitions": [1_000],
    "tables": [300],
}


def _options(parser: argparse.ArgumentParser) -> None:
    for name, what in WHAT.items():
        shown = f"{what} {SIZES[name]}"
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, nargs="*", default=SIZES[name], metavar="N", help=shown)


PART = Part(
    "memory",
    "A task's peak memory.",
    _options,
    _steps,
    smoke="--records 1000 --megabytes --kafka-partitions --partitions --tables",
)

if __name__ == "__main__":
    sys.exit(alone(PART))

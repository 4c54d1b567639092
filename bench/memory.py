"""What a task holds at its peak, whatever it reads and writes: `python -m bench.memory`.

Each row is a whole run whose tasks run in its process, one after the other, and whose peak resident memory is that of a
task with all that a driver needs besides (catalog, control topic). Each thing that might grow is there in a small and
in a large size: it is bounded if the second needs hardly more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.measure import ROOT
from bench.workload import fill, write_pipeline
from orchestration import broker
from tests import support
from tests.pipelines import Flow

DIRECTORY = ROOT / ".bench"
SCRATCH = DIRECTORY / "memory"
MB = 1_000_000
QUEUED = 50_000
ONE_TASK = {"batch": {"min_task_bytes": "64GiB", "max_bytes": "64GiB"}}
"""However much there is, a single task reads it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run: what is large in it and how large, and the process's peak in MiB."""

    what: str
    size: int
    peak_mib: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document; 1 if a row needs more than the bound."""
    options = _options().parse_args(arguments)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    parts = {
        "records": _records,
        "megabytes": _megabyte_records,
        "kafka_partitions": _kafka_partitions,
        "partitions": _partitions,
        "tables": _tables,
    }
    rows: list[Row] = []
    try:
        for what, part in parts.items():
            for size in getattr(options, what):
                rows.append(Row(what, size, _peak(part(started.bootstrap, size))))
                print(rows[-1], file=sys.stderr, flush=True)
    finally:
        broker.stop(DIRECTORY / "broker")
        shutil.rmtree(SCRATCH, ignore_errors=True)
    found = [{"what": row.what, "size": row.size, "peak_mib": row.peak_mib} for row in rows]
    print(json.dumps({"bound_mib": options.bound, "rows": found}, indent=2))
    return 0 if all(row.peak_mib <= options.bound for row in rows) else 1


def _peak(file: Path) -> int:
    """MiB of the process that runs the pipeline to its end."""
    command = [sys.executable, "-m", "tests.integration.in_one_process", str(file)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return round(float(done.stdout))


def _records(bootstrap: str, size: int) -> Path:
    """Events of `bench.workload` into one file."""
    topic = fill(bootstrap, size, lambda line: print(line, file=sys.stderr))
    file = write_pipeline(SCRATCH / f"records-{size}", bootstrap, topic)
    file.write_text(file.read_text() + json.dumps(ONE_TASK)[1:-1].replace('"batch"', "batch") + "\n")
    return file


def _megabyte_records(bootstrap: str, size: int) -> Path:
    """As many records of a megabyte each, as large as producers send without being told to."""
    return _filled(
        bootstrap, (json.dumps({"id": i, "text": f"{i:07}" * (MB // 7 - 100)}).encode() for i in range(size))
    )


def _kafka_partitions(bootstrap: str, size: int) -> Path:
    """100 kB from each of as many partitions."""
    topic = support.create_topic(bootstrap, support.unique("memory"), size)
    flow = Flow.create(SCRATCH, bootstrap, topic, extra=ONE_TASK)
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


def _partitions(bootstrap: str, size: int) -> Path:
    """300 MB into as many partitions of a table, all written to all the time."""
    by_text = {"columns": {"id": "long", "p": "int", "text": "string"}, "partition_by": ["p"]}
    values = (json.dumps({"id": i, "p": i % size, "text": "x" * 960}).encode() for i in range(300_000))
    return _filled(bootstrap, values, auto_create=by_text)


def _tables(bootstrap: str, size: int) -> Path:
    """The same into as many tables."""
    by_field = {"name": "db.t_{value}", "name_from": {"field": "k", "allow": "[0-9]+", "max_tables": 10_000}}
    created = {"auto_create": {"columns": {"id": "long", "k": "string", "text": "string"}}}
    values = (json.dumps({"id": i, "k": str(i % size), "text": "x" * 960}).encode() for i in range(300_000))
    return _filled(bootstrap, values, extra={"tables": [by_field | created]})


def _filled(bootstrap: str, values: Iterator[bytes], extra: dict[str, Any] | None = None, **options: Any) -> Path:
    topic = support.create_topic(bootstrap, support.unique("memory"), 1, {"max.message.bytes": str(4 * MB)})
    flow = Flow.create(SCRATCH, bootstrap, topic, extra=ONE_TASK | (extra or {}), **options)
    support.produce(bootstrap, topic, values)
    return flow.pipeline.path


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description="A task's peak memory.")
    parser.add_argument("--bound", type=int, default=768, metavar="MIB", help="what no row may exceed (768)")
    for name, sizes, what in (
        ("records", [1_000, 200_000, 4_000_000], "records of 270 bytes in a task"),
        ("megabytes", [100, 500], "records of a megabyte"),
        ("kafka-partitions", [10, 1_000], "partitions of a topic that a task reads"),
        ("partitions", [10, 1_000], "partitions of a table that it writes"),
        ("tables", [10, 300], "tables that it writes"),
    ):
        parser.add_argument(f"--{name}", type=int, nargs="*", default=sizes, metavar="N", help=f"{what} {sizes}")
    return parser


if __name__ == "__main__":
    sys.exit(main())

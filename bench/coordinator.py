"""What a commit costs, and what it does not depend on: `python -m bench.coordinator`.

Each row publishes one batch and commits it, with one thing made large: files in a batch, tables it feeds, tables that
it does not feed, snapshots in a table's history. Beside them: planning a batch of many partitions, and what `status`
and `verify` make of many batches. Broker, catalog (SQLite) and files are real; the tasks run in this process, since
Spark has no part in what is measured. Wall seconds, medians of `--runs`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psutil

from bench.batches import publish
from bench.history import lengthen
from bench.measure import ROOT
from orchestration import broker
from sink_core.offsets import TopicPartition
from sink_core.plan import Limits, plan_batch
from sink_core.status import status
from sink_core.verify.verify import verify
from spark_jobs.run import Bounds, run_pipeline
from tests import support
from tests.pipelines import Flow, InProcess

DIRECTORY = ROOT / ".bench"
SCRATCH = DIRECTORY / "coordinator"
ONCE = Bounds(max_batches=1, max_duration_s=600.0, linger_s=0.0)
PARTITIONS = 24
COLUMNS = {"id": "long", "k": "string", "p": "int"}
BY_NAME: dict[str, Any] = {
    "name": "db.t_{value}",
    "name_from": {"field": "k", "allow": "[0-9]+", "max_tables": 100_000},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: `size` of what was made large; wall seconds of each step, and what else was looked at."""

    what: str
    size: int
    figures: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document."""
    options = _options().parse_args(arguments)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    parts: dict[str, Callable[[str, int], dict[str, float]]] = {
        "files": _files,
        "tables": _tables,
        "partitioned": _partitioned,
        "silent": _silent,
        "snapshots": _snapshots,
        "partitions": _partitions,
        "batches": _batches,
    }
    rows: list[Row] = []
    try:
        for what, part in parts.items():
            for size in getattr(options, what):
                rows.append(_median(what, size, [part(started.bootstrap, size) for _ in range(options.runs)]))
                print(rows[-1], file=sys.stderr, flush=True)
    finally:
        broker.stop(DIRECTORY / "broker")
    print(json.dumps([{"what": row.what, "size": row.size, **row.figures} for row in rows], indent=2))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.coordinator", description="What a commit costs.")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the medians count (3)")
    for name, sizes, what in (
        ("files", [10, 100, 1_000, 10_000], "data files in a batch"),
        ("tables", [1, 10, 100, 500], "tables that a batch feeds"),
        ("partitioned", [100], f"tables of {PARTITIONS} partitions each that a batch feeds, files in each"),
        ("silent", [0, 99, 999], "tables beside the one that a batch feeds"),
        ("snapshots", [10, 100, 1_000, 10_000], "snapshots of a table"),
        ("partitions", [100, 1_000, 10_000], "partitions of a plan"),
        ("batches", [100, 1_000, 10_000], "batches that status and verify look at"),
    ):
        parser.add_argument(f"--{name}", type=int, nargs="*", default=sizes, metavar="N", help=f"{what} {sizes}")
    return parser


def _median(what: str, size: int, runs: Sequence[dict[str, float]]) -> Row:
    return Row(what, size, {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]})


def _flow(bootstrap: str, **options: Any) -> Flow:
    topic = support.create_topic(bootstrap, support.unique("bench"), 1)
    return Flow.create(SCRATCH, bootstrap, topic, **options)


def _produce(flow: Flow, keys: Iterable[object], partitions: int = 1) -> None:
    """A record for each key and partition of a table."""
    places = ((key, partition) for key in keys for partition in range(partitions))
    records = ({"id": number, "k": str(key), "p": p, "text": ""} for number, (key, p) in enumerate(places))
    support.produce(flow.bootstrap, flow.topic, [json.dumps(record).encode() for record in records])


def _timed_batch(flow: Flow) -> dict[str, float]:
    """One batch by a process that begins with it: seconds of its steps, then of the commit."""
    with flow.session() as session:
        report = run_pipeline(session, InProcess(), bounds=ONCE, committing=False)
        [batch] = report.batches
        events, began = session.log.state.next_offset, time.perf_counter()
        commit = session.coordinator().commit(after_publish=True)
        seconds = time.perf_counter() - began
        commit.raise_failures()
        return {
            **batch.seconds,
            "commit": seconds,
            "events_read": session.log.state.next_offset - events,
            "memory_mib": psutil.Process().memory_info().rss / 2**20,
        }


def _files(bootstrap: str, size: int) -> dict[str, float]:
    flow = _flow(bootstrap, auto_create={"columns": COLUMNS, "partition_by": ["k"]})
    _produce(flow, [0])
    flow.run()
    _produce(flow, range(size))
    return _timed_batch(flow)


def _tables(bootstrap: str, size: int) -> dict[str, float]:
    return _second_batch(_by_name(bootstrap, []), size, 1)


def _partitioned(bootstrap: str, size: int) -> dict[str, float]:
    return _second_batch(_by_name(bootstrap, ["p"]), size, PARTITIONS)


def _second_batch(flow: Flow, tables: int, partitions: int) -> dict[str, float]:
    """The first one creates the tables."""
    _produce(flow, range(tables))
    flow.run()
    _produce(flow, range(tables), partitions)
    return _timed_batch(flow)


def _silent(bootstrap: str, size: int) -> dict[str, float]:
    flow = _by_name(bootstrap, [])
    _produce(flow, range(size + 1))
    flow.run()
    _produce(flow, [0])
    return _timed_batch(flow)


def _by_name(bootstrap: str, partition_by: Sequence[str]) -> Flow:
    """Records name their tables."""
    created = {"auto_create": {"columns": COLUMNS, "partition_by": list(partition_by)}}
    return _flow(bootstrap, extra={"tables": [BY_NAME | created]})


def _snapshots(bootstrap: str, size: int) -> dict[str, float]:
    flow = _flow(bootstrap)
    _produce(flow, [0])
    flow.run()
    with flow.iceberg() as catalog:
        lengthen(catalog, flow.table, flow.pipeline.tag, size)
    _produce(flow, [0])
    return _timed_batch(flow)


def _partitions(_bootstrap: str, size: int) -> dict[str, float]:
    places = [TopicPartition(f"topic-{number % 10}", number // 10) for number in range(size)]
    limits = Limits(max_records=10_000_000, max_bytes=4 * 2**30, max_tasks=64, min_task_bytes=2**20)
    began = time.perf_counter()
    plan_batch(
        batch_id="b",
        predecessor="a",
        starts=dict.fromkeys(places, 0),
        ends={at: 100 + number for number, at in enumerate(places)},
        bytes_per_record={f"topic-{number}": 270.0 for number in range(10)},
        limits=limits,
        topic_ids={f"topic-{number}": str(number) for number in range(10)},
        broker_time_ms=0,
    )
    return {"plan": time.perf_counter() - began}


def _batches(bootstrap: str, size: int) -> dict[str, float]:
    """The first one creates the tables."""
    flow = _flow(bootstrap)
    _produce(flow, [0])
    flow.run()
    _produce(flow, range(1, size))
    with flow.session() as session:
        session.bind()
        publish(session, flow.table, 1, size)
        began = time.perf_counter()
        session.coordinator().commit(after_publish=True).raise_failures()
        committed = time.perf_counter()
    return {"commit": committed - began, **dict(_looks(flow))}


def _looks(flow: Flow) -> Iterator[tuple[str, float]]:
    moments = [time.perf_counter()]
    with flow.session() as session:
        session.read_only()
        status(session)
        moments.append(time.perf_counter())
    with flow.session() as session:
        proof = verify(session, deep=False)
        assert proof.proven, proof.violations
        moments.append(time.perf_counter())
    yield from zip(("status", "verify"), (end - start for start, end in pairwise(moments)), strict=True)
    yield "memory_mib", psutil.Process().memory_info().rss / 2**20


if __name__ == "__main__":
    sys.exit(main())

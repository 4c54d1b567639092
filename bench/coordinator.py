"""What a commit costs, and what it does not depend on: `python -m bench.coordinator`.

Each row publishes one batch and commits it, with one thing made large: files in a batch, tables it feeds, tables that
it does not feed, snapshots in a table's history. Beside them: planning a batch of many partitions. Broker, catalog
(SQLite) and files are real; the tasks run in this process, since Spark has no part in what is measured. Wall seconds,
medians of `--runs` batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import psutil

from bench.figure import Aim, Figure
from bench.history import lengthen
from bench.part import Part, Place, Step, alone
from bench.proof import prove
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.control.shares import Limits
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.loop.plan import plan_batch
from calve.sink_core.sink.run import run_pipeline
from tests import support
from tests.pipelines import Flow
from tests.postgres import postgres
from tests.rest_catalog import RestCatalog, proxied

ONCE = Bounds(max_batches=1, max_duration_s=600.0, linger_s=0.0)
PARTITIONS = 24
RECORDS = 100
COLUMNS = {"id": "long", "k": "string", "p": "int"}
BY_NAME: dict[str, Any] = {
    "name": "db.t_{value}",
    "name_from": {"field": "k", "allow": "[0-9]+", "max_tables": 100_000},
}
ANSWER_S = 0.02
"""By so much a catalog that is a service answers later than one on the same machine."""
AIMS_S = {("postgres", 500): 3.0}
"""Of commits, by row and size."""


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    for name, (_, _, rows) in ROWS.items():
        for size in getattr(options, name):
            yield Step(f"{name} {size:,}", partial(_figures, place, name, rows, size, options.runs))


def _figures(place: Place, name: str, rows: Rows, size: int, runs: int) -> Iterator[Figure]:
    done = list(rows(place, size, runs))
    found = {each: round(statistics.median(run[each] for run in done), 3) for each in done[0]}
    what = f"{size:,} {ROWS[name][0]}"
    if name == "plan":
        yield Figure(f"{name}-{size}", f"a plan of {what}", found["plan"], "s")
    else:
        aim = Aim(AIMS_S[name, size], at_most=True) if (name, size) in AIMS_S else None
        yield Figure(f"{name}-{size}", f"commit: {what}", found["commit"], "s", aim, more=_but(found, "commit"))


def _but(found: Mapping[str, float], shown: str) -> dict[str, float]:
    """What is shown beside."""
    units = {
        "commit_cpu": "CPU-s",
        "one_at_a_time_cpu": "CPU-s one at a time",
        "events_read": "events read",
        "memory_mib": "MiB",
    }
    return {units.get(name, f"s {name}"): value for name, value in found.items() if name != shown}


def flow_of(place: Place, **options: Any) -> Flow:
    """A pipeline of a topic of its own."""
    topic = support.create_topic(place.bootstrap, support.unique("bench"), 1)
    return Flow.create(place.scratch, place.bootstrap, topic, **options)


def send(flow: Flow, keys: Iterable[object], records_each: int = 1) -> None:
    """So many records for each key, no two in one partition of a table."""
    places = ((key, partition) for key in keys for partition in range(records_each))
    records = ({"id": number, "k": str(key), "p": p, "text": ""} for number, (key, p) in enumerate(places))
    support.produce(flow.bootstrap, flow.topic, [json.dumps(record).encode() for record in records])


def _timed_batch(flow: Flow) -> dict[str, float]:
    """One batch by a process that begins with it: seconds of its steps, then of the commit."""
    with flow.session() as session:
        report = run_pipeline(session, bounds=ONCE, committing=False)
        [batch] = report.batches
        events, began, cpu_began = session.log.state.next_offset, time.perf_counter(), time.process_time()
        commit = session.coordinator().commit(after_publish=True)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        commit.raise_failures()
        return {
            **batch.seconds,
            "commit": seconds,
            "commit_cpu": cpu_s,
            "events_read": session.log.state.next_offset - events,
            "memory_mib": psutil.Process().memory_info().rss / 2**20,
        }


def _timed_batches(flow: Flow, runs: int, produce: Callable[[], None]) -> Iterator[dict[str, float]]:
    """So many batches of what is produced before each; they are proven once they have been measured."""
    for _run in range(runs):
        produce()
        yield _timed_batch(flow)
    prove(flow.pipeline)


def _files(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    flow = flow_of(place, auto_create={"columns": COLUMNS, "partition_by": ["k"]})
    send(flow, [0])
    flow.run()
    yield from _timed_batches(flow, runs, lambda: send(flow, range(size)))


def _tables(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    return _later_batches(_by_name(place, []), runs, size, 1)


def _filled(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    return _later_batches(_by_name(place, []), runs, size, RECORDS)


def _served(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    plain = _by_name(place, [])
    server = RestCatalog(plain.lake, plain.catalog)
    server.start()
    try:
        with proxied(server.port) as proxy:
            proxy.delay_s = ANSWER_S
            yield from _both_ways(plain.but(lake_properties={"type": "rest", "uri": proxy.uri}), runs, size)
    finally:
        server.stop()


def _sql_served(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    with postgres() as server:
        yield from _both_ways(_by_name(place, []).but(lake_properties={"uri": server.url}), runs, size)


def _both_ways(flow: Flow, runs: int, size: int) -> Iterator[dict[str, float]]:
    """Several tables at a time, then one."""
    alone = flow.but(extra={**flow.extra, "commit": {"parallel_tables": 1}})
    batches = zip(_later_batches(flow, runs, size, 1), _later_batches(alone, runs, size, 1), strict=True)
    for together, apart in batches:
        yield {
            "commit": together["commit"],
            "commit_cpu": together["commit_cpu"],
            "one at a time": apart["commit"],
            "one_at_a_time_cpu": apart["commit_cpu"],
        }


def _partitioned(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    return _later_batches(_by_name(place, ["p"]), runs, size, PARTITIONS)


def _later_batches(flow: Flow, runs: int, tables: int, records: int) -> Iterator[dict[str, float]]:
    """The first one creates the tables."""
    send(flow, range(tables))
    flow.run()
    yield from _timed_batches(flow, runs, lambda: send(flow, range(tables), records))


def _silent(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    flow = _by_name(place, [])
    send(flow, range(size + 1))
    flow.run()
    yield from _timed_batches(flow, runs, lambda: send(flow, [0]))


def _by_name(place: Place, partition_by: Sequence[str]) -> Flow:
    """Records name their tables."""
    created = {"auto_create": {"columns": COLUMNS, "partition_by": list(partition_by)}}
    return flow_of(place, extra={"tables": [BY_NAME | created]})


def _snapshots(place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    flow = flow_of(place)
    send(flow, [0])
    flow.run()
    with flow.iceberg() as catalog:
        lengthen(catalog, flow.table, flow.pipeline.tag, size)
    yield from _timed_batches(flow, runs, lambda: send(flow, [0]))


def _plan(_place: Place, size: int, runs: int) -> Iterator[dict[str, float]]:
    places = [TopicPartition(f"topic-{number % 10}", number // 10) for number in range(size)]
    limits = Limits(max_records=10_000_000, max_bytes=4 * 2**30, max_tasks=64, min_task_bytes=2**20)
    for _run in range(runs):
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
        yield {"plan": time.perf_counter() - began}


Rows = Callable[[Place, int, int], Iterator[dict[str, float]]]
"""Makes one thing as large as the first number, and measures as often as the second one."""
ROWS: Mapping[str, tuple[str, Sequence[int], Rows]] = {
    "files": ("data files in a batch", [10, 1_000], _files),
    "tables": ("tables that a batch feeds", [1, 10, 100], _tables),
    "filled": (f"tables that a batch feeds with {RECORDS} records each", [1_000], _filled),
    "served": (f"tables that a batch feeds, each answer of the catalog {ANSWER_S * 1000:.0f} ms later", [10], _served),
    "postgres": ("tables that a batch feeds, of a SQL catalog on PostgreSQL", [500], _sql_served),
    "partitioned": (f"tables of {PARTITIONS} partitions each that a batch feeds, files in each", [], _partitioned),
    "silent": ("tables beside the one that a batch feeds", [0, 499], _silent),
    "snapshots": ("snapshots of a table", [10, 5_000], _snapshots),
    "plan": ("partitions", [100, 10_000], _plan),
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the medians count (3)")
    for name, (what, sizes, _) in ROWS.items():
        shown = f"{what} {list(sizes)}"
        parser.add_argument(f"--{name}", type=int, nargs="*", default=sizes, metavar="N", help=shown)


PART = Part(
    "coordinator",
    "What a commit costs.",
    _options,
    _steps,
    smoke="--runs 1 --files 2 --tables 2 --filled 2 --served 2 --postgres 2 --silent 1 --snapshots 3 --plan 4",
)

if __name__ == "__main__":
    sys.exit(alone(PART))

"""What row changes cost, whoever writes and reads them: `python -m bench.row_changes`.

A table of a million rows takes a hundred batches of 10,000 upserts of random keys, each with its equality deletes. All
of it is read by Spark, every column: with the deletes left alone, and once `compact` has taken them out. Beside it the
same records are appended to another table. Ends with 1 if the scan gets less than ten times faster, or a key is there
twice.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.inside import caught_up
from bench.measure import ROOT, Measured, Meter
from bench.workload import PARTITIONS, events, new_topic, numbered, write_pipeline
from calve.orchestration.local import broker
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.config.table_maintenance import Compact
from calve.sink_core.iceberg.maintenance.shape import shape
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.maintenance.compact import compact
from calve.sink_core.sink.maintenance.work import Work
from calve.spark_jobs.catalog import attach
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.procedures import SparkProcedures

DIRECTORY = ROOT / ".bench"
TABLE = "bench.events"
AIM = 10.0
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Size:
    """Rows of the table, batches of changes, and changes of each; how often the table is read each time."""

    rows: int
    batches: int
    changes: int
    scans: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document."""
    given = _options().parse_args(arguments)
    shutil.rmtree(DIRECTORY / "row_changes", ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    try:
        found = _measure(started.bootstrap, Size(given.rows, given.batches, given.changes, given.scans))
    finally:
        broker.stop(DIRECTORY / "broker")
    print(json.dumps(found, indent=2))
    return 0 if found["times_faster"] >= AIM and found["rows"] == given.rows else 1


def _measure(bootstrap: str, size: Size) -> dict[str, Any]:
    topics = [new_topic(bootstrap) for _ in range(2)]
    files = [
        write_pipeline(DIRECTORY / "row_changes" / name, bootstrap, topic)
        for name, topic in zip("ua", topics, strict=True)
    ]
    upserts, appends = files
    _set(upserts, size.rows, mode="upsert", key=["id"])
    _set(appends, size.changes)
    _say(f"{size.rows:,} rows")
    _produce(bootstrap, topics[0], range(size.rows))
    with SparkEngine(load(upserts).spark) as engine:
        loaded = _run(load(upserts), engine, size.rows)
        _set(upserts, size.changes)
        changed = list(_keys(size))
        for topic in topics:
            _produce(bootstrap, topic, changed)
        _say(f"{size.batches:,} batches of {size.changes:,}, appended")
        appended = _run(load(appends), engine, len(changed))
        _say("and as upserts")
        upserted = _run(load(upserts), engine, len(changed))
        pipeline, session = load(upserts), engine.session
        attach(session, pipeline.catalog)
        _say("scans with the deletes left alone")
        before, rows = _scan(session, pipeline, size.scans)
        _say("compaction")
        compacted, shapes = _compact(session, pipeline)
        _say("scans without them")
        after, rows_after = _scan(session, pipeline, size.scans)
    assert rows == rows_after, (rows, rows_after)
    return {
        "rows": rows,
        "batches": size.batches,
        "changes_of_each": size.changes,
        "load": _cost(loaded),
        "appends": _cost(appended),
        "upserts": _cost(upserted),
        "compact": _cost(compacted),
        "files_before_and_after": shapes,
        "scan_with_deletes_s": before,
        "scan_compacted_s": after,
        "times_faster": round(before["wall"] / after["wall"], 1),
    }


def _run(pipeline: SinkPipeline, engine: SparkEngine, records: int) -> Measured:
    """A run on a session that is up."""
    engine.session.range(1).collect()
    return caught_up(pipeline, engine, records)


def _scan(spark: SparkSession, pipeline: SinkPipeline, times: int) -> tuple[dict[str, float], int]:
    """Medians of seconds for reading every column of all rows, and how many rows there are."""
    table = spark.table(f"{pipeline.catalog.name}.{TABLE}")
    found: list[Measured] = []
    for _ in range(times):
        meter = Meter()
        table.write.format("noop").mode("overwrite").save()
        found.append(meter.read(0))
        _say(f"  {found[-1].wall_s:.1f} s")
    seconds = {"wall": [each.wall_s for each in found], "cpu": [each.cpu_s for each in found]}
    return {name: round(statistics.median(each), 2) for name, each in seconds.items()}, table.count()


def _compact(spark: SparkSession, pipeline: SinkPipeline) -> tuple[Measured, list[dict[str, int]]]:
    """As `calve maintain … compact`, with its defaults."""
    with Session.open(pipeline) as session:
        session.read_only()
        session.bind()
        before, meter = shape(session.catalog.load_table(TABLE)), Meter()
        report = compact(Work(session, SparkProcedures(lambda: spark, pipeline.catalog), _say, (TABLE,)), Compact())
        assert not report.failed, report
        return meter.read(0), [before, shape(session.catalog.load_table(TABLE))]


def _cost(measured: Measured) -> dict[str, float]:
    return {"cpu_s": round(measured.cpu_s, 1), "wall_s": round(measured.wall_s, 1)}


def _set(file: Path, batch: int, **table: Any) -> None:
    """Records of a batch, and settings of the table."""
    content = yaml.safe_load(file.read_text())
    content["batch"] = {"max_records": batch}
    content["run"] = {"max_batches": 1_000_000, "max_duration": "12h"}
    content["tables"][0] |= table
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _keys(size: Size) -> Iterator[int]:
    chance = random.Random(1)  # noqa: S311 - the same keys each time
    return (chance.randrange(size.rows) for _ in range(size.batches * size.changes))


def _produce(bootstrap: str, topic: str, ids: Sequence[int]) -> None:
    """An event for each id; those of an id are all in one partition."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50}
    producer, values = Producer({**settings, "enable.idempotence": True}), events(10_000)
    for number, event_id in enumerate(ids):
        value = numbered(values[number % len(values)], event_id)
        while True:
            try:
                producer.produce(topic, value, partition=event_id % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(TIMEOUT_S):
        raise SystemExit(f"{left:,} events were not acknowledged in {TIMEOUT_S:.0f} s")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.row_changes", description="Upserts, appends and scans.")
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="rows of the table (1,000,000)")
    parser.add_argument("--batches", type=int, default=100, metavar="N", help="batches of upserts (100)")
    parser.add_argument("--changes", type=int, default=10_000, metavar="N", help="upserts of each (10,000)")
    parser.add_argument("--scans", type=int, default=3, metavar="N", help="scans before and after (3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

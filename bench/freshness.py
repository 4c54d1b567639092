"""How soon a record is in its table, with Dagster's daemon: `python -m bench.freshness`.

A producer sends events at a steady rate; the sensor starts a run that lingers. A reader polls the table and takes the
time at which it first sees each snapshot; a record's freshness is that time minus the timestamp its producer gave it.
Both on this machine's clock. Then the producer stops, and the last record's freshness is that of a burst's end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from bench.measure import ROOT
from bench.producing import Producing
from bench.workload import new_topic, write_pipeline
from orchestration import broker
from sink_core.config.load import load
from sink_core.tables.catalog import open_catalog
from tests.e2e.dagster.stack import stack

DIRECTORY = ROOT / ".bench"
TABLE = "bench.events"
POLL_S = 0.02
GIVE_UP_S = 120.0


@dataclass
class Seen:
    """Freshness in seconds of each record, and when it was seen; `rows` in total."""

    at_s: list[float] = field(default_factory=list[float])
    ages_s: list[list[float]] = field(default_factory=list[list[float]])
    rows: int = 0
    snapshots: set[int] = field(default_factory=set[int])

    def take(self, table: Table) -> None:
        """Look once; every row of snapshots not seen before is visible now."""
        now_ms = time.time() * 1000
        new = [s for s in table.metadata.snapshots if s.snapshot_id not in self.snapshots]
        for snapshot in new:
            self.snapshots.add(snapshot.snapshot_id)
            stamps = _timestamps_ms(table, snapshot.snapshot_id)
            self.rows += len(stamps)
            self.at_s.append(now_ms / 1000)
            self.ages_s.append([(now_ms - stamp) / 1000 for stamp in stamps])

    def between(self, start_s: float, end_s: float) -> list[float]:
        """Of records that became visible in a span of time."""
        return [age for at, ages in zip(self.at_s, self.ages_s, strict=True) if start_s <= at <= end_s for age in ages]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document."""
    options = _options().parse_args(arguments)
    shutil.rmtree(DIRECTORY / "freshness", ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    try:
        found = _measure(started.bootstrap, options.per_second, options.seconds, options.warm_up)
    finally:
        broker.stop(DIRECTORY / "broker")
    print(json.dumps(found, indent=2))
    return 0


def _measure(bootstrap: str, per_second: int, seconds: float, warm_up_s: float) -> dict[str, object]:
    directory = DIRECTORY / "freshness"
    topic = new_topic(bootstrap)
    file = write_pipeline(directory / "pipeline", bootstrap, topic)
    _lingering(file, seconds + warm_up_s + GIVE_UP_S)
    catalog, seen = open_catalog(load(file).catalog), Seen()
    with stack(directory / "dagster", [file]) as dagster:
        dagster.daemon()
        producing = Producing(bootstrap, topic, per_second)
        began = time.time()
        producing.start()
        first = _watch(catalog, seen, lambda: seen.rows > 0, GIVE_UP_S)
        steady = time.time() + warm_up_s
        _watch(catalog, seen, lambda: time.time() >= steady + seconds, seconds + warm_up_s + 5)
        last_s = producing.stop()
        _watch(catalog, seen, lambda: seen.rows >= producing.sent, GIVE_UP_S)
        ages = seen.between(steady, steady + seconds)
        cut = statistics.quantiles(ages, n=100)
        return {
            "events_per_second": per_second,
            "measured_s": seconds,
            "records_measured": len(ages),
            "snapshots": len(seen.snapshots),
            "p50_s": round(cut[49], 3),
            "p95_s": round(cut[94], 3),
            "p99_s": round(cut[98], 3),
            "last_of_burst_s": round(seen.at_s[-1] - last_s, 3),
            "cold_start_s": round(first - began, 3),
            "sent": producing.sent,
            "rows": seen.rows,
        }


def _watch(catalog: Catalog, seen: Seen, done: Callable[[], bool], timeout_s: float) -> float:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {timeout_s:.0f} s; {seen.rows:,} rows are visible")
        with suppress(NoSuchTableError):
            seen.take(catalog.load_table(TABLE))
        time.sleep(POLL_S)
    return time.time()


def _timestamps_ms(table: Table, snapshot_id: int) -> list[float]:
    """Of the rows a snapshot added."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    stamps: list[float] = []
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            with table.io.new_input(entry.data_file.file_path).open() as source:
                kafka = pq.read_table(pa.PythonFile(source), columns=["_kafka"]).column("_kafka")
            column = pc.struct_field(kafka, "timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
            stamps += column.cast(pa.int64()).to_pylist()
    return stamps


def _lingering(file: Path, linger_s: float) -> None:
    """The pipeline with one long run."""
    content = yaml.safe_load(file.read_text())
    content["run"] = {"linger": f"{linger_s:.0f}s", "max_duration": f"{2 * linger_s:.0f}s", "max_batches": 1_000_000}
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.freshness", description="Event to visible row.")
    parser.add_argument("--per-second", type=int, default=5_000, metavar="N", help="events a second (5,000)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="measured time (60)")
    parser.add_argument("--warm-up", type=float, default=15.0, metavar="S", help="left out after the first commit (15)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

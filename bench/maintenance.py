"""Ingestion with maintenance beside it, all by Dagster's daemon: `python -m bench.maintenance`.

A producer sends events at a steady rate; compaction and manifests come every minute, expiry every two, trim every
three. Each minute the table is looked at as a reader would: its files, and how long planning a scan takes. At the end
every run must have succeeded, every event must be in the table once, and the deep proof must hold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from bench.measure import ROOT
from bench.producing import Producing
from bench.workload import new_topic, write_pipeline
from calve.orchestration.dagster.common.names import STAGE_TAG
from calve.orchestration.local import broker
from calve.sink_core.config.load import load
from calve.sink_core.config.table_maintenance import TASKS
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.maintenance.shape import shape
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.verify.proof import verify
from tests.e2e.dagster.stack import Stack, stack

DIRECTORY = ROOT / ".bench"
TABLE = "bench.events"
GIVE_UP_S = 180.0
LOOK_EVERY_S = 60.0
MAINTENANCE = {
    "compact": {"cron": "* * * * *", "lag": "0s"},
    "manifests": {"cron": "* * * * *", "min_count": 20},
    "expire": {"cron": "*/2 * * * *", "older_than": "1m"},
    "trim": {"cron": "*/3 * * * *", "older_than": "1m"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document; 1 if a run failed, an event is not in the table once or the proof fails."""
    options = _options().parse_args(arguments)
    shutil.rmtree(DIRECTORY / "maintenance", ignore_errors=True)
    started = broker.start(DIRECTORY / "broker")
    try:
        found = _measure(started.bootstrap, options.per_second, options.seconds)
    finally:
        broker.stop(DIRECTORY / "broker")
    print(json.dumps(found, indent=2))
    return 0 if found["proven"] and found["rows"] == found["sent"] and not found["failed_runs"] else 1


def _measure(bootstrap: str, per_second: int, seconds: float) -> dict[str, Any]:
    directory = DIRECTORY / "maintenance"
    topic = new_topic(bootstrap)
    file = write_pipeline(directory / "pipeline", bootstrap, topic)
    _with_maintenance(file)
    pipeline = load(file)
    catalog, looks = open_catalog(pipeline.catalog), list[dict[str, float]]()
    with stack(directory / "dagster", [file]) as dagster:
        dagster.daemon()
        producing = Producing(bootstrap, topic, per_second)
        producing.start()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            time.sleep(min(LOOK_EVERY_S, began + seconds - time.monotonic()))
            looks.append(_look(catalog, time.monotonic() - began))
            print(json.dumps(looks[-1]), file=sys.stderr, flush=True)
        producing.stop()
        rows = _await_rows(catalog, producing.sent)
        ended = _runs(dagster, pipeline.name)
    with Session.open(pipeline) as session:
        proof = verify(session, deep=True)
    return {
        "events_per_second": per_second,
        "measured_s": seconds,
        "minutes": looks,
        "runs": {f"{stage} {status}": number for (stage, status), number in sorted(ended.items())},
        "failed_runs": sum(number for (_, status), number in ended.items() if status == "FAILURE"),
        "sent": producing.sent,
        "rows": rows,
        "proven": proof.proven,
        "violations": [violation.message for violation in proof.violations],
    }


def _look(catalog: Catalog, after_s: float) -> dict[str, float]:
    try:
        table = catalog.load_table(TABLE)
    except NoSuchTableError:
        return {"after_s": round(after_s), "data_files": 0}
    planning: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        list(catalog.load_table(TABLE).scan().plan_files())
        planning.append(time.perf_counter() - began)
    return {"after_s": round(after_s), **shape(table), "planning_ms": round(1000 * statistics.median(planning), 1)}


def _await_rows(catalog: Catalog, expected: int) -> int:
    deadline, rows = time.monotonic() + GIVE_UP_S, -1
    while rows < expected and time.monotonic() < deadline:
        rows = sum(task.file.record_count for task in catalog.load_table(TABLE).scan().plan_files())
        time.sleep(1)
    return rows


def _runs(dagster: Stack, pipeline: str) -> Counter[tuple[str, str]]:
    """Runs by stage and how they ended, after those in progress have."""
    stages = ("ingest", *TASKS)
    deadline = time.monotonic() + GIVE_UP_S
    under_way = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING]
    while any(dagster.runs(pipeline, stage=s, statuses=under_way) for s in TASKS) and time.monotonic() < deadline:
        time.sleep(1)
    records = [record.dagster_run for stage in stages for record in dagster.runs(pipeline, stage=stage)]
    return Counter((run.tags[STAGE_TAG], run.status.value) for run in records)


def _with_maintenance(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    content["batch"] = {**content.get("batch", {}), "every": "0s"}
    content["run"] = {"linger": "30s", "max_duration": "2m", "max_batches": 1_000_000}
    content["maintenance"] = MAINTENANCE
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.maintenance", description="Ingestion beside maintenance.")
    parser.add_argument("--per-second", type=int, default=2_000, metavar="N", help="events a second (2,000)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="how long (600)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

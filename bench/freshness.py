"""How soon a record is in its table, with Dagster's daemon: `python -m bench.freshness`.

A producer sends events at a steady rate; the sensor starts a run that lingers. A reader looks at the table 50 times a
second and takes the time at which it first sees each snapshot; a record's freshness is that time minus the moment its
producer sent it, which is in the record. Both on this machine's clock. Then the producer stops, and the last record's
freshness is that of a burst's end. A cold start is from the first event, with a daemon that is up and no run, to the
first row. `--snapshots` gives the table a history first, `--peers` has iceberg-kafka-connect do the same afterwards,
with two intervals of its commits; its cold start is that of its worker.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import dagster as dg
import yaml
from pyiceberg.catalog import Catalog

from bench.connector import TABLE, worker
from bench.history import lengthen
from bench.measure import ROOT
from bench.producing import Producing
from bench.seen import Seen
from bench.workload import new_topic, write_pipeline
from orchestration import broker
from orchestration.pipelines.names import batches_key, table_key
from sink_core.config.effective import Pipeline
from sink_core.config.load import load
from sink_core.session import Session
from sink_core.tables.catalog import open_catalog
from spark_jobs.run import Bounds, run_pipeline
from tests.e2e.dagster.stack import Stack, stack, until
from tests.pipelines import InProcess

DIRECTORY = ROOT / ".bench"
SCRATCH = DIRECTORY / "freshness"
GIVE_UP_S = 180.0
CONNECTOR_INTERVALS_MS = (1_000, 5_000)
AT_ONCE = Bounds(max_batches=10, max_duration_s=60.0, linger_s=0.0)
FEW = 1_000
"""Events of a cold start."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What is sent, and for how long it is looked at."""

    per_second: int
    seconds: float
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table, in seconds; `parts` are medians of a batch's steps."""

    what: str
    p50: float
    p95: float
    p99: float
    last_of_burst: float
    sent: int
    snapshots: int
    cold_starts: list[float] = field(default_factory=list[float])
    parts: dict[str, float] = field(default_factory=dict[str, float])
    cold_parts: dict[str, float] = field(default_factory=dict[str, float])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print tables, or JSON."""
    options = _options().parse_args(arguments)
    sending = Sending(options.per_second, options.seconds, options.warm_up)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    started = broker.start(DIRECTORY / "broker")
    rows: list[Row] = []
    try:
        if "calve" in options.only:
            rows.append(_calve(started.bootstrap, sending, options.snapshots, options.cold_starts))
        if "peers" in options.only:
            rows += [_connector(started.bootstrap, sending, every_ms) for every_ms in CONNECTOR_INTERVALS_MS]
    finally:
        broker.stop(DIRECTORY / "broker")
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else "\n\n".join(_tables(rows)))
    return 0


def _calve(bootstrap: str, sending: Sending, snapshots: int, cold_starts: int) -> Row:
    cold = [*_cold_starts(bootstrap, cold_starts)] if cold_starts else []
    medians = {name: round(statistics.median(each[name] for each in cold), 2) for name in (cold[0] if cold else ())}
    topic, directory = new_topic(bootstrap), SCRATCH / "steady"
    file = write_pipeline(directory, bootstrap, topic)
    _set(file, linger_s=sending.seconds + sending.warm_up_s + GIVE_UP_S)
    pipeline, seen = load(file), Seen(directory / "catalog.db", TABLE)
    with _committed_once(pipeline, bootstrap, topic, snapshots) as catalog, _daemon(pipeline) as dagster:
        seen.begin()
        row = _measured("Calve", bootstrap, topic, sending, seen, catalog)
        parts = _parts(dagster.instance, pipeline)
    return _with(row, cold_starts=[round(sum(each.values()), 1) for each in cold], parts=parts, cold_parts=medians)


def _connector(bootstrap: str, sending: Sending, every_ms: int) -> Row:
    topic = new_topic(bootstrap)
    began = time.time()
    with worker(bootstrap, topic, SCRATCH, every_ms) as (connect, catalog):
        seen = Seen(connect.directory.parent / "lake" / "catalog.db", TABLE)
        row = _measured(f"connector, {every_ms / 1000:g} s", bootstrap, topic, sending, seen, catalog)
        return _with(row, cold_starts=[round(min(seen.at_s.values()) - began, 1)])


def _measured(what: str, bootstrap: str, topic: str, sending: Sending, seen: Seen, catalog: Catalog) -> Row:
    producing = Producing(bootstrap, topic, sending.per_second, stamped=True)
    producing.start()
    seen.watch(lambda: bool(seen.at_s), GIVE_UP_S)
    steady_s = time.time() + sending.warm_up_s
    end_s = steady_s + sending.seconds
    seen.watch(lambda: time.time() >= end_s, sending.seconds + sending.warm_up_s + 5)
    last_s = producing.stop()
    all_there_s = seen.watch(lambda: seen.added >= producing.sent, GIVE_UP_S)
    cut = statistics.quantiles(seen.ages_s(catalog, steady_s, end_s), n=100)
    p50, p95, p99 = (round(cut[percent - 1], 2) for percent in (50, 95, 99))
    return Row(what, p50, p95, p99, round(all_there_s - last_s, 2), producing.sent, len(seen.at_s))


def _cold_starts(bootstrap: str, number: int) -> Iterator[dict[str, float]]:
    """The parts of each: a pipeline that is caught up, whose run has ended, gets events."""
    topic, directory = new_topic(bootstrap), SCRATCH / "cold"
    file = write_pipeline(directory, bootstrap, topic)
    _set(file, linger_s=0.0)
    pipeline, seen = load(file), Seen(directory / "catalog.db", TABLE)
    with _committed_once(pipeline, bootstrap, topic) as _, _daemon(pipeline) as dagster:
        for _start in range(number):
            seen.begin()
            runs, began = len(dagster.runs(pipeline.name)), time.time()
            _send(bootstrap, topic)
            row_s = seen.watch(lambda: bool(seen.at_s), GIVE_UP_S)
            record = dagster.runs(pipeline.name)[0]
            assert len(dagster.runs(pipeline.name)) == runs + 1, "one run for each"
            wanted_s, started_s = record.create_timestamp.timestamp(), record.start_time or 0.0
            steps = _told(dagster.instance, batches_key(pipeline), began)
            steps |= _told(dagster.instance, table_key(pipeline, TABLE), began)
            planning = steps.pop("plan")
            yield {
                "until a tick wants a run": wanted_s - began,
                "until the run has started": started_s - wanted_s,
                "until it has looked at everything": row_s - started_s - sum(steps.values()) - planning,
                "plan": planning,
                **steps,
            }
            until(lambda: all(run.dagster_run.is_finished for run in dagster.runs(pipeline.name)), timeout_s=GIVE_UP_S)


@contextmanager
def _committed_once(pipeline: Pipeline, bootstrap: str, topic: str, snapshots: int = 1) -> Iterator[Catalog]:
    """The pipeline has its tables, with a first batch in them, and as many snapshots; gives its catalog."""
    _send(bootstrap, topic)
    with Session.open(pipeline) as session:
        run_pipeline(session, InProcess(), bounds=AT_ONCE)
    catalog = open_catalog(pipeline.catalog)
    if snapshots > 1:
        lengthen(catalog, TABLE, pipeline.tag, snapshots)
    yield catalog
    catalog.close()


@contextmanager
def _daemon(pipeline: Pipeline) -> Iterator[Stack]:
    """A daemon and a code server whose sensor has looked, and found nothing to do."""
    with stack(pipeline.path.parent / "dagster", [pipeline.path]) as dagster:
        dagster.code_server()
        dagster.daemon()
        until(lambda: dagster.last_skip(f"{pipeline.name}_lag"), timeout_s=GIVE_UP_S, why=dagster.logs)
        yield dagster


def _send(bootstrap: str, topic: str) -> None:
    """A few events."""
    producing = Producing(bootstrap, topic, FEW, stamped=True)
    producing.start()
    time.sleep(1)
    producing.stop()


def _set(file: Path, *, linger_s: float) -> None:
    """One long run, or short ones that start at once when there is something to read."""
    content = yaml.safe_load(file.read_text())
    content["run"] = {
        "linger": f"{linger_s:.0f}s",
        "max_duration": f"{2 * linger_s + 600:.0f}s",
        "max_batches": 1_000_000,
    }
    content["trigger"] = {"or_records": 1}
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def _parts(instance: dg.DagsterInstance, pipeline: Pipeline) -> dict[str, float]:
    """Medians of the steps of the last batches: what is no step of theirs is telling the control topic and Dagster."""
    batches = _materialized(instance, batches_key(pipeline), 30)
    tables = [TABLE, pipeline.ledger_table]
    commits = {table: _materialized(instance, table_key(pipeline, table), 30) for table in tables}
    parts = {name: statistics.median(_steps(batch)[name] for batch in batches) for name in _steps(batches[0])}
    for table, records in commits.items():
        kind = "table" if table == TABLE else "ledger"
        parts[f"commit, {kind}"] = statistics.median(_steps(record)["commit"] for record in records)
    whole = statistics.median(abs(b.timestamp - a.timestamp) for a, b in pairwise(batches))
    parts["telling the control topic and Dagster"] = whole - sum(parts.values())
    parts["from batch to batch"] = whole
    return {name: round(seconds, 3) for name, seconds in parts.items()}


def _told(instance: dg.DagsterInstance, key: dg.AssetKey, since_s: float) -> dict[str, float]:
    """The steps of the one materialization since then, which is told some time after it was made."""
    [record] = until(
        lambda: [each for each in _materialized(instance, key, 1) if each.timestamp > since_s], timeout_s=GIVE_UP_S
    )
    return _steps(record)


def _materialized(instance: dg.DagsterInstance, key: dg.AssetKey, number: int) -> list[dg.EventLogRecord]:
    """The last ones, newest first."""
    return list(instance.fetch_materializations(key, limit=number).records)


def _steps(record: dg.EventLogRecord) -> dict[str, float]:
    """What a materialization says of its seconds."""
    said = record.asset_materialization
    assert said is not None
    prefix = "seconds to "
    return {
        name.removeprefix(prefix): float(str(v.value)) for name, v in said.metadata.items() if name.startswith(prefix)
    }


def _with(row: Row, **more: object) -> Row:
    return Row(**{**asdict(row), **more})


def _tables(rows: Sequence[Row]) -> Iterator[str]:
    """For people, in Markdown."""
    heads = ("", "half within", "95 of 100", "99 of 100", "last of a burst", "cold start")
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        figures = (f"{each:.2f}" for each in (row.p50, row.p95, row.p99, row.last_of_burst))
        colds = " ".join(f"{each:.1f}" for each in row.cold_starts)
        lines.append(f"| {row.what} | {' | '.join(figures)} | {colds} |")
    yield "\n".join(lines)
    for row in rows:
        for parts in filter(None, (row.parts, row.cold_parts)):
            yield "\n".join(
                ["| | s |", "|---|---:|", *(f"| {name} | {seconds:.3f} |" for name, seconds in parts.items())]
            )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.freshness", description="Event to visible row.")
    parser.add_argument("--per-second", type=int, default=5_000, metavar="N", help="events a second (5,000)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="measured time (60)")
    parser.add_argument("--warm-up", type=float, default=15.0, metavar="S", help="left out after the first commit (15)")
    parser.add_argument("--snapshots", type=int, default=1, metavar="N", help="that the table has before (1)")
    parser.add_argument("--cold-starts", type=int, default=3, metavar="N", help="cold starts of Calve (3)")
    parser.add_argument(
        "--peers", dest="only", action="store_const", const=("calve", "peers"), help="the connector too"
    )
    parser.add_argument("--only-peers", dest="only", action="store_const", const=("peers",), help="the connector alone")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(only=("calve",))
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""How soon a record is in its table, with Dagster's daemon: `python -m bench.freshness`.

A producer sends events at a steady rate; the sensor starts a run that lingers. A reader looks at the table 50 times a
second and takes the time at which it first sees each snapshot; a record's freshness is that time minus the moment its
producer sent it, which is in the record. Both on this machine's clock. Three times the producer stops, and the last
record's freshness is that of a burst's end; of the three bursts the medians count. A cold start is from the first
event, with a daemon that is up and no run, to the first row. Then a table with a history, and iceberg-kafka-connect
with two intervals of its commits; its cold start is that of its worker.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import dagster as dg
import yaml
from pyiceberg.catalog import Catalog

from bench.connector import TABLE, fetch, worker
from bench.figure import Aim, Figure
from bench.history import lengthen
from bench.part import Part, Place, Step, alone
from bench.producing import Producing
from bench.proof import prove
from bench.seen import Seen
from bench.workload import new_topic, write_pipeline
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from tests.e2e.dagster.stack import Stack, stack, until

GIVE_UP_S = 180.0
CONNECTOR_INTERVALS_S = (1, 5)
PEER = "connector-1s"
AT_ONCE = Bounds(max_batches=10, max_duration_s=60.0, linger_s=0.0)
BURSTS = 3
FEW = 1_000
"""Events of a cold start."""
MOST, LATER, LAST, COLD = (Aim(seconds, at_most=True) for seconds in (0.5, 1.0, 2.0, 15.0))
"""What 95 of 100 records, those after many snapshots, the last of a burst and a cold start are to take."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What is sent, and for how long it is looked at: all bursts together, a first time of them left out."""

    per_second: int
    seconds: float
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Fresh:
    """Seconds of one burst."""

    p50: float
    p95: float
    p99: float
    last: float


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    sending = Sending(options.per_second, options.seconds, options.warm_up)
    steps = {
        "cold": partial(_cold, place, options),
        "calve": partial(_calve, place, sending, "calve", 1, options),
        "history": partial(_calve, place, sending, "history", options.snapshots, options),
        **{f"connector-{every}s": partial(_connector, place, sending, every) for every in CONNECTOR_INTERVALS_S},
    }
    for name in options.rows or USUAL:
        yield Step(name, steps[name])


NAMES = ("cold", "calve", "history", *(f"connector-{every}s" for every in CONNECTOR_INTERVALS_S))
USUAL = NAMES[:-1]
"""Those that `make bench` has."""


def _cold(place: Place, options: argparse.Namespace) -> Iterator[Figure]:
    starts = list(_cold_starts(place, options.cold_starts))
    seconds = statistics.median(sum(each.values()) for each in starts)
    yield Figure("cold", "first event to first row, daemon up and no run", round(seconds, 1), "s", COLD, f"{PEER} cold")
    if options.steps:
        for part in starts[0]:
            yield Figure(f"cold {part}", "of a start", round(statistics.median(each[part] for each in starts), 2), "s")


def _calve(place: Place, sending: Sending, name: str, snapshots: int, options: argparse.Namespace) -> Iterator[Figure]:
    topic, directory = new_topic(place.bootstrap), place.scratch / name
    file = write_pipeline(directory, place.bootstrap, topic)
    _set(file, linger_s=sending.seconds + sending.warm_up_s + GIVE_UP_S)
    pipeline, seen = load(file), Seen(directory / "catalog.db", TABLE)
    what = f"Calve, {snapshots:,} snapshots before" if snapshots > 1 else "Calve"
    with _committed_once(pipeline, place.bootstrap, topic, snapshots) as catalog, _daemon(pipeline) as dagster:
        seen.begin()
        bursts = _bursts(place.bootstrap, topic, sending, seen, catalog)
        yield from _figures(name, what, bursts, LATER if snapshots > 1 else MOST, LAST, PEER)
        if options.steps:
            for part, seconds in _parts(dagster.instance, pipeline).items():
                yield Figure(f"{name} {part}", "of a batch", seconds, "s")
    prove(pipeline)


def _connector(place: Place, sending: Sending, every_s: int) -> Iterator[Figure]:
    name, topic = f"connector-{every_s}s", new_topic(place.bootstrap)
    fetch()
    began = time.time()
    with worker(place.bootstrap, topic, place.scratch, every_s * 1_000) as (connect, catalog):
        seen = Seen(connect.directory.parent / "lake" / "catalog.db", TABLE)
        bursts = _bursts(place.bootstrap, topic, sending, seen, catalog)
        cold_s = round(min(seen.at_s.values()) - began, 1)
    what = f"iceberg-kafka-connect, commits every {every_s} s"
    yield from _figures(name, what, bursts)
    yield Figure(f"{name} cold", f"{what}: its worker's start to the first row", cold_s, "s")


def _figures(
    name: str, what: str, bursts: Sequence[Fresh], most: Aim | None = None, last: Aim | None = None, peer: str = ""
) -> Iterator[Figure]:
    """Medians of the bursts."""
    p50, p95, p99, end = (
        round(statistics.median(getattr(burst, each) for burst in bursts), 2) for each in ("p50", "p95", "p99", "last")
    )
    others = {"s half": p50, "s 99 of 100": p99}
    yield Figure(name, f"{what}: 95 of 100 records within", p95, "s", most, peer, others)
    yield Figure(f"{name} last", f"{what}: the last of a burst", end, "s", last, f"{peer} last" if peer else "")


def _bursts(bootstrap: str, topic: str, sending: Sending, seen: Seen, catalog: Catalog) -> Sequence[Fresh]:
    """Events for a while and then none until all are there, a few times; of the first what warms up is left out."""
    sent, found = 0, list[Fresh]()
    for burst in range(BURSTS):
        producing = Producing(bootstrap, topic, sending.per_second, stamped=True)
        producing.start()
        if burst == 0:
            seen.watch(lambda: bool(seen.at_s), GIVE_UP_S)
        start_s = time.time() + (sending.warm_up_s if burst == 0 else 0.0)
        end_s = start_s + sending.seconds / BURSTS
        seen.watch(lambda end_s=end_s: time.time() >= end_s, sending.seconds + sending.warm_up_s + 5)
        last_s = producing.stop()
        sent += producing.sent
        all_there_s = seen.watch(lambda sent=sent: seen.added >= sent, GIVE_UP_S)
        cut = statistics.quantiles(seen.ages_s(catalog, start_s, end_s), n=100)
        p50, p95, p99 = (cut[percent - 1] for percent in (50, 95, 99))
        found.append(Fresh(p50, p95, p99, all_there_s - last_s))
    return found


def _cold_starts(place: Place, number: int) -> Iterator[dict[str, float]]:
    """The parts of each: a pipeline that is caught up, whose run has ended, gets events."""
    bootstrap = place.bootstrap
    topic, directory = new_topic(bootstrap), place.scratch / "cold"
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
    prove(pipeline)


@contextmanager
def _committed_once(pipeline: SinkPipeline, bootstrap: str, topic: str, snapshots: int = 1) -> Iterator[Catalog]:
    """The pipeline has its tables, with a first batch in them, and as many snapshots; gives its catalog."""
    _send(bootstrap, topic)
    with Session.open(pipeline) as session:
        run_pipeline(session, bounds=AT_ONCE)
    catalog = open_catalog(pipeline.catalog)
    if snapshots > 1:
        lengthen(catalog, TABLE, pipeline.tag, snapshots)
    yield catalog
    catalog.close()


@contextmanager
def _daemon(pipeline: SinkPipeline) -> Iterator[Stack]:
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


def _parts(instance: dg.DagsterInstance, pipeline: SinkPipeline) -> dict[str, float]:
    """Medians of the steps of the last batches: what is no step of theirs is the ledger, whose commit is told at the
    end of a run, and telling the control topic and Dagster.
    """
    batches = _materialized(instance, batches_key(pipeline), 30)
    parts = {name: statistics.median(_seconds(batch)[name] for batch in batches) for name in _seconds(batches[0])}
    commits = _materialized(instance, table_key(pipeline, TABLE), 30)
    parts["commit, table"] = statistics.median(_seconds(record)["commit"] for record in commits)
    whole = statistics.median(abs(b.timestamp - a.timestamp) for a, b in pairwise(batches))
    parts["commit of the ledger, telling the control topic and Dagster"] = whole - sum(parts.values())
    parts["from batch to batch"] = whole
    return {name: round(seconds, 3) for name, seconds in parts.items()}


def _told(instance: dg.DagsterInstance, key: dg.AssetKey, since_s: float) -> dict[str, float]:
    """The steps of the one materialization since then, which is told some time after it was made."""
    [record] = until(
        lambda: [each for each in _materialized(instance, key, 1) if each.timestamp > since_s], timeout_s=GIVE_UP_S
    )
    return _seconds(record)


def _materialized(instance: dg.DagsterInstance, key: dg.AssetKey, number: int) -> list[dg.EventLogRecord]:
    """The last ones, newest first."""
    return list(instance.fetch_materializations(key, limit=number).records)


def _seconds(record: dg.EventLogRecord) -> dict[str, float]:
    """What a materialization says of its seconds."""
    said = record.asset_materialization
    assert said is not None
    unit = " time (s)"
    return {name.removesuffix(unit): float(str(v.value)) for name, v in said.metadata.items() if name.endswith(unit)}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--per-second", type=int, default=5_000, metavar="N", help="events a second (5,000)")
    parser.add_argument("--seconds", type=float, default=18.0, metavar="S", help=f"of {BURSTS} bursts together (18)")
    parser.add_argument("--warm-up", type=float, default=6.0, metavar="S", help="left out after the first commit (6)")
    parser.add_argument("--snapshots", type=int, default=5_000, metavar="N", help="of the table with a history (5,000)")
    parser.add_argument("--cold-starts", type=int, default=3, metavar="N", help="cold starts of Calve (3)")
    parser.add_argument(
        "--only", dest="rows", action="append", choices=NAMES, metavar="ROW", help=f"one of {', '.join(NAMES)}"
    )
    parser.add_argument("--steps", action="store_true", help="what takes how long of a batch and a cold start, too")


PART = Part(
    "freshness",
    "Event to visible row.",
    _options,
    _steps,
    smoke="--seconds 6 --warm-up 1 --snapshots 3 --cold-starts 1 --only calve --only connector-1s",
)

if __name__ == "__main__":
    sys.exit(alone(PART))

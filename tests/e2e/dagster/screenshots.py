"""Takes the screenshots of Dagster's UI for the documents, of the flights demo in a folder that is gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import dagster as dg
from confluent_kafka import Producer
from dagster import DagsterInstance
from playwright.sync_api import Page, expect

from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG
from calve.orchestration.local import broker
from calve.sink_core.detached import free_port
from examples.flights import produce
from tests.e2e.dagster.browser import THEMES, browser, group_path, sensor_path
from tests.e2e.dagster.stack import ROOT, answers, until

IMAGES = ROOT / "docs" / "images"
BIN = Path(sys.executable).parent
LARGEST_BYTES = 200_000
LOCATION, PIPELINE, GROUP = "calve", "flights", "air"
FLIGHTS, DELAYS = dg.AssetKey(["air", "flights"]), dg.AssetKey(["air", "delays_by_carrier"])
BURSTS = (9_000, 14_000, 6_000, 21_000)
"""Flights that come later: one run and one point in the plots each."""
STARTED_WITHIN_S = 300.0
AGGREGATE_WITHIN_S = 60.0
SETTLED_MS = 1_500
"""Charts and fonts are drawn a moment after their page has its text."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _demo(Path(folder)) as (url, instance):
        first = _runs(instance)[-1]
        for theme in THEMES:
            with browser(theme) as context, closing(context.new_page()) as page:
                for name, show in _pages(first).items():
                    show(page, url)
                    _shoot(page, IMAGES / f"{name}{'' if theme == 'light' else f'-{theme}'}.png")


def sources() -> None:
    """The lineage of `examples/postgres_to_iceberg`, of which nothing has to run."""
    with tempfile.TemporaryDirectory() as folder, _bank(Path(folder)) as url:
        for theme in THEMES:
            with browser(theme) as context, closing(context.new_page()) as page:
                page.goto(f"{url}/assets/bank/accounts?view=lineage&lineageScope=upstream&lineageDepth=8")
                expect(page.get_by_text("bank_batches").first).to_be_visible()
                _shoot(page, IMAGES / f"database-lineage{'' if theme == 'light' else f'-{theme}'}.png")


@contextmanager
def _bank(folder: Path) -> Generator[str]:
    """The address of a UI that has both of its pipelines."""
    port = free_port()
    (folder / "dagster.yaml").write_text("nux: {enabled: false}\ntelemetry: {enabled: false}\n")
    nowhere = {f"CALVE_DEMO_{name}": "/nowhere" for name in ("POSTGRES", "KAFKA", "LAKE")}
    command = [BIN / "dagster-webserver", "-m", "tests.e2e.dagster.bank_defs", "-p", str(port)]
    env = {**os.environ, **nowhere, "DAGSTER_HOME": str(folder)}
    server = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    try:
        until(lambda: answers(port), timeout_s=STARTED_WITHIN_S, why=lambda: "the UI does not answer")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def _shoot(page: Page, image: Path) -> None:
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=image)
    size = image.stat().st_size
    assert size < LARGEST_BYTES, f"{image} has {size:,} bytes"
    sys.stdout.write(f"{image.relative_to(ROOT)}: {size:,} bytes\n")


def _pages(run: dg.DagsterRun) -> dict[str, Callable[[Page, str], None]]:
    """How to get to what each image shows."""

    def lineage(page: Page, url: str) -> None:
        page.goto(url + group_path(LOCATION, GROUP))
        expect(page.get_by_text("Materialized", exact=True)).not_to_have_count(0)

    def shown_run(page: Page, url: str) -> None:
        page.goto(f"{url}/runs/{run.run_id}")
        page.get_by_placeholder("Filter…").fill("publish time")
        expect(page.get_by_text("lag (offsets)").first).to_be_visible()

    def batches(page: Page, url: str) -> None:
        page.goto(f"{url}/assets/{PIPELINE}/{PIPELINE}_batches")
        page.get_by_role("button", name="Plots").click()
        expect(page.locator("canvas").first).to_be_visible()
        page.get_by_text("bytes", exact=True).first.evaluate("title => title.scrollIntoView()")

    def table(page: Page, url: str) -> None:
        page.goto(f"{url}/assets/air/flights")
        expect(page.get_by_text("Row count")).to_be_visible()

    def checks(page: Page, url: str) -> None:
        page.goto(f"{url}/assets/air/flights_dead_letters?view=checks")
        expect(page.get_by_text("Latest execution")).to_be_visible()

    def sensor(page: Page, url: str) -> None:
        page.goto(url + sensor_path(LOCATION, f"{PIPELINE}_lag"))
        # The status of a tick; above it floats what the tick saw.
        page.get_by_role("row").get_by_text("0 runs requested").nth(1).hover()
        expect(page.get_by_text("caught up").first).to_be_visible()

    return {
        "lineage": lineage,
        "run": shown_run,
        "batches": batches,
        "table": table,
        "checks": checks,
        "sensor": sensor,
    }


@contextmanager
def _demo(folder: Path) -> Generator[tuple[str, DagsterInstance]]:
    """The UI's address and the instance of `make dev` once all flights have arrived."""
    port = free_port()
    command = [sys.executable, "examples/flights/dev.py", "--port", str(port), "--per-second", "0"]
    dev = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "CALVE_DEMO_DIR": str(folder)}, start_new_session=True)
    try:
        # Not before: two that set up a new storage get into each other's way.
        until(lambda: _answers(port, dev), timeout_s=STARTED_WITHIN_S, why=lambda: _log(folder))
        with DagsterInstance.from_config(str(folder / "dagster")) as instance:
            _fill(folder, instance)
            yield f"http://127.0.0.1:{port}", instance
    finally:
        dev.send_signal(signal.SIGINT)
        dev.wait()


def _answers(port: int, dev: subprocess.Popen[bytes]) -> bool:
    assert dev.poll() is None, "`make dev` ended by itself"
    return answers(port)


def _fill(folder: Path, instance: DagsterInstance) -> None:
    """Wait until the year's flights have arrived, then send more in bursts with a run for each."""

    def wait(runs: int) -> None:
        until(lambda: len(_runs(instance)) >= runs, timeout_s=STARTED_WITHIN_S, why=lambda: _log(folder))
        # While the aggregate is being made, more flights would be lost on it: Dagster takes it for up to date then.
        with suppress(AssertionError):
            until(lambda: _is_up_to_date(instance), timeout_s=AGGREGATE_WITHIN_S)

    wait(1)
    running = broker.status(folder / "broker")
    assert running is not None
    more = produce.events(None)
    for number, burst in enumerate(BURSTS, start=2):
        _send(running.bootstrap, islice(more, burst))
        wait(number)
    assert _is_up_to_date(instance), "the aggregate lacks flights"


def _is_up_to_date(instance: DagsterInstance) -> bool:
    """Whether the aggregate was made of the flights there are."""
    of_each = (instance.get_latest_materialization_event(key) for key in (FLIGHTS, DELAYS))
    flights, delays = (event.asset_materialization if event else None for event in of_each)
    return bool(flights and delays and flights.metadata["snapshot id"] == delays.metadata["snapshot id"])


def _send(bootstrap: str, events: Iterator[produce.Event]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for key, value in events:
        producer.produce(produce.TOPIC, value, key)
    assert producer.flush(60) == 0


def _runs(instance: DagsterInstance) -> list[dg.DagsterRun]:
    """Those that moved flights, newest first."""
    tags = {PIPELINE_TAG: PIPELINE, STAGE_TAG: "ingest"}
    return list(instance.get_runs(dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.SUCCESS])))


def _log(folder: Path) -> str:
    file = folder / "dagster" / "dev.log"
    return file.read_text(errors="replace")[-3000:] if file.exists() else "no log yet"


if __name__ == "__main__":
    sources()
    main()

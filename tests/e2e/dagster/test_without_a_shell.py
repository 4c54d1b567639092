"""What an operator does in Dagster's UI and nowhere else: no shell, no pipeline file, no client of Kafka or Iceberg."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, timedelta
from typing import Any

import dagster as dg
import pytest
import yaml
from playwright.sync_api import BrowserContext, Page, expect
from pyiceberg.types import LongType

from calve.orchestration.dagster.common.names import PAUSE, RESOLVE, RESUME, job_name, op_name
from calve.orchestration.dagster.sink.names import DEAD_LETTERS, INGEST, REPLAY_DEAD_LETTERS, REPLAY_HOURS
from tests import support
from tests.changing import by_chdb
from tests.e2e.dagster.browser import job_path
from tests.e2e.dagster.conftest import Deployment
from tests.e2e.dagster.stack import until
from tests.launch import forked
from tests.pipelines import Flow

SUCCESS = dg.DagsterRunStatus.SUCCESS


@pytest.fixture(scope="module")
def page(context: BrowserContext) -> Generator[Page]:
    with closing(context.new_page()) as opened:
        yield opened


def job(at: Deployment, flow: Flow, stage: str, tab: str) -> str:
    return at.url + job_path("test", job_name(flow.pipeline, stage), tab)


def launch(page: Page, at: Deployment, flow: Flow, stage: str, **config: Any) -> None:
    """Launch a job from its Launchpad, with what its editor opens with unless told otherwise; its run is the page."""
    page.goto(job(at, flow, stage, "playground"))
    expect(page.get_by_text("No errors")).to_be_visible()
    if config:
        editor = page.locator(".CodeMirror").first
        editor.click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(yaml.safe_dump({"ops": {op_name(flow.pipeline, stage): {"config": config}}}))
        expect(page.get_by_text("No errors")).to_be_visible()
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_url("**/runs/*")


def succeeds(page: Page) -> None:
    """The run that the page shows."""
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()


def backfill(page: Page, at: Deployment, flow: Flow, hours: str, runs: int) -> list[dg.RunRecord]:
    """Launch a backfill from the Partitions page and wait for its end; its runs."""
    known = {record.dagster_run.run_id for record in at.dagster.runs(flow.name, stage=REPLAY_HOURS)}

    def ended() -> list[dg.RunRecord]:
        new = [
            record
            for record in at.dagster.runs(flow.name, stage=REPLAY_HOURS)
            if record.dagster_run.run_id not in known and record.dagster_run.is_finished
        ]
        return new if len(new) == runs else []

    page.goto(job(at, flow, REPLAY_HOURS, "partitions"))
    page.get_by_role("button", name="Launch backfill").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_placeholder("ex: 20").fill(hours)
    page.keyboard.press("Tab")
    dialog.get_by_role("button", name=re.compile(rf"Submit {runs} run|Launch {runs} run")).click()
    return until(ended, timeout_s=240, why=at.dagster.logs)


@pytest.mark.faults
def test_hours_are_replayed_from_the_partitions_page_and_an_empty_one_is_green(
    deployment: Deployment, page: Page
) -> None:
    flow = deployment.of.hours
    flow.load_table().delete("id = 13")
    before = len(flow.own_snapshots())
    planned = sorted({row["planned_at"] for row in flow.rows(flow.pipeline.ledger_table) if row["records"]})
    first, *_, last = (moment.astimezone(UTC).strftime("%Y-%m-%d-%H:00") for moment in planned)
    runs = backfill(page, deployment, flow, f"[{first}...{last}]", 3)
    assert [record.dagster_run.status for record in runs] == [SUCCESS] * 3, deployment.dagster.logs()
    assert sorted(int(row["id"]) for row in by_chdb(flow.load_table())) == list(range(30))
    made = flow.own_snapshots()[before:]
    assert len(made) == 3, "a commit for each hour"

    page.goto(f"{deployment.url}/runs/{runs[0].dagster_run.run_id}")
    succeeds(page)
    page.get_by_placeholder("Filter…").fill("replayed hour")
    expect(page.get_by_text("snapshot id").first).to_be_visible()

    empty = (planned[0] - timedelta(hours=4)).astimezone(UTC).strftime("%Y-%m-%d-%H:00")
    [run] = backfill(page, deployment, flow, empty, 1)
    assert run.dagster_run.status == SUCCESS
    page.goto(f"{deployment.url}/runs/{run.dagster_run.run_id}")
    expect(page.get_by_text(f"the hour {empty} is empty")).to_be_visible()
    assert len(flow.own_snapshots()) == before + 3


def test_a_pause_made_in_the_ui_holds_the_command_line(deployment: Deployment, page: Page) -> None:
    flow = deployment.of.paused
    launch(page, deployment, flow, PAUSE, reason="a look at the data", wait=True)
    succeeds(page)
    flow.produce(range(10, 15))
    held = forked("run", flow.pipeline.path)
    assert (held.returncode, "a look at the data" in held.stdout) == (0, True), held.stdout + held.stderr
    assert flow.ids() == list(range(10))
    launch(page, deployment, flow, RESUME)
    expect(page.get_by_text("a look at the data").first).to_be_visible()
    assert forked("run", flow.pipeline.path).returncode == 0
    assert flow.ids() == list(range(15))


@pytest.mark.faults
def test_a_table_that_was_rolled_back_is_answered(deployment: Deployment, page: Page) -> None:
    flow = deployment.of.rolled_back
    flow.produce(range(10, 20))
    flow.run()
    first = flow.load_table().metadata.snapshots[0].snapshot_id
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    flow.produce(range(20, 30))

    launch(page, deployment, flow, INGEST)
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    expect(page.get_by_text("what to do").first).to_be_visible()
    expect(page.get_by_role("link", name=job_name(flow.pipeline, RESOLVE)).first).to_be_visible()

    launch(page, deployment, flow, RESOLVE)
    succeeds(page)
    for choice in ("accept:", "recommit:", "refill:"):
        expect(page.get_by_text(choice).first).to_be_visible()
    launch(page, deployment, flow, RESOLVE, finding="table-rolled-back", choice="recommit")
    succeeds(page)
    launch(page, deployment, flow, INGEST)
    succeeds(page)
    assert sorted(int(row["id"]) for row in by_chdb(flow.load_table())) == list(range(30))


@pytest.mark.faults
def test_dead_letters_are_looked_at_and_replayed(deployment: Deployment, page: Page) -> None:
    flow = deployment.of.spoiled
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 3000000000, "text": "n"}'])
    launch(page, deployment, flow, INGEST)
    succeeds(page)
    launch(page, deployment, flow, DEAD_LETTERS)
    succeeds(page)
    expect(page.get_by_role("cell", name='{"id": 3000000000, "text": "n"}').first).to_be_visible()

    with flow.load_table().update_schema() as change:
        change.update_column("id", LongType())
    launch(page, deployment, flow, REPLAY_DEAD_LETTERS)
    succeeds(page)
    expect(page.get_by_text("0 still bad").first).to_be_visible()
    assert sorted(int(row["id"]) for row in by_chdb(flow.load_table())) == [*range(10), 3_000_000_000]
    assert flow.rows(flow.pipeline.dead_letter_table) == []


def test_one_table_is_materialized_alone(deployment: Deployment, page: Page) -> None:
    flow, (table, other) = deployment.of.alone, deployment.of.alone.tables
    page.goto(f"{deployment.url}/assets/{table.replace('.', '/')}")
    page.get_by_role("button", name="Materialize").first.click()
    # Dagster asks since no run of its own has published the batch.
    page.get_by_role("button", name="Confirm").click()
    key = dg.AssetKey(table.split("."))
    until(
        lambda: deployment.dagster.instance.get_latest_materialization_event(key),
        timeout_s=120,
        why=deployment.dagster.logs,
    )
    assert sorted(int(row["id"]) for row in by_chdb(flow.load_table(table))) == list(range(10))
    assert flow.load_table(other).current_snapshot() is None

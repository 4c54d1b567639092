"""What a person sees in the UI of a pipeline that ran, and of the asset behind it that Dagster brought up to date."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

import dagster as dg
import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from calve.orchestration.dagster.common.moving import MOVED_TAG
from tests.e2e.dagster.browser import group_path, sensor_path
from tests.e2e.dagster.conftest import BAD, DEAD_LETTERS, GOOD, GROUP, Deployment
from tests.e2e.dagster.stack import Stack, until
from tests.pipelines import Flow

LOCATION = "test"
TOTALS = dg.AssetKey("totals")
STARTED_WITHIN_S = 240


@dataclass(frozen=True)
class Shown:
    """A pipeline that has caught up, with dead letters above its objective, and the UI that shows it."""

    flow: Flow
    dagster: Stack
    url: str
    run: dg.DagsterRun

    @property
    def batches(self) -> str:
        return f"{self.url}/assets/{self.flow.name}/{self.flow.name}_batches"


@pytest.fixture(scope="module")
def shown(deployment: Deployment) -> Shown:
    dagster, flow = deployment.dagster, deployment.of.shown
    until(lambda: _all_is_up_to_date(dagster, flow), timeout_s=STARTED_WITHIN_S, why=dagster.logs)
    (record,) = dagster.runs(flow.name)
    return Shown(flow, dagster, deployment.url, record.dagster_run)


def _all_is_up_to_date(dagster: Stack, flow: Flow) -> bool:
    """The run has succeeded, the sensor has seen that nothing waits, and the aggregate is newer than its table."""
    if not dagster.runs(flow.name, statuses=[dg.DagsterRunStatus.SUCCESS]):
        return False
    table, totals = (dagster.instance.get_latest_materialization_event(k) for k in (_key(flow.table), TOTALS))
    new = table is not None and totals is not None and totals.timestamp > table.timestamp
    return new and "caught up" in dagster.last_skip(f"{flow.name}_lag")


def _key(table: str) -> dg.AssetKey:
    return dg.AssetKey(table.split("."))


@pytest.fixture
def page(context: BrowserContext) -> Generator[Page]:
    """A page of its own. It must not have met any error by the end of the test."""
    errors: list[str] = []
    with closing(context.new_page()) as opened:
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        opened.on("response", lambda got: errors.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        yield opened
    assert errors == []


def _text(place: Page | Locator, text: str | re.Pattern[str]) -> Locator:
    """What is visible of a text; an exact one if it is no pattern."""
    return place.get_by_text(text, exact=True).filter(visible=True).first


def test_the_lineage_leads_from_the_topic_to_the_aggregate(shown: Shown, page: Page) -> None:
    page.goto(shown.url + group_path(LOCATION, GROUP))
    topic = f"{shown.flow.topic.replace('-', '_')}_topic"
    for name in (topic, f"{shown.flow.name}_batches", "events", "dead_letters", f"{shown.flow.name}_ledger", "totals"):
        expect(_text(page, name)).to_be_visible()
    # All but the topic, which is only observed.
    expect(page.get_by_text("Materialized", exact=True)).to_have_count(5)
    # Of the checks of the dead letters: a record was bad, and none for want of a column.
    expect(_text(page, "1 / 2 Passed")).to_be_visible()
    expect(page.get_by_text("Unsynced")).to_have_count(0)


def test_the_sensor_tells_of_each_tick_what_it_saw(shown: Shown, page: Page) -> None:
    page.goto(shown.url + sensor_path(LOCATION, f"{shown.flow.name}_lag"))
    described = rf"\b{re.escape(shown.flow.name)}\b.* {re.escape(shown.flow.topic)}\b.* 5 s"
    expect(_text(page, re.compile(described))).to_be_visible()
    page.get_by_role("row").get_by_role("button", name="0 runs requested").first.click()
    tick = page.get_by_role("dialog")
    expect(tick).to_contain_text("Skip reason: caught up")


def test_the_run_tells_what_it_moved(shown: Shown, page: Page) -> None:
    page.goto(f"{shown.url}/runs/{shown.run.run_id}")
    expect(_text(page, "Success")).to_be_visible()
    moved = shown.run.tags[MOVED_TAG]
    assert moved.split()[0] == str(GOOD + BAD)
    page.get_by_role("button", name="View tags and config").click()
    tags = page.get_by_role("dialog")
    expect(tags).to_contain_text(f"{MOVED_TAG}: {moved}")
    expect(tags).to_contain_text("calve/reason: first run")


def test_the_runs_events_have_batches_and_rows(shown: Shown, page: Page) -> None:
    page.goto(f"{shown.url}/runs/{shown.run.run_id}")
    events = page.get_by_placeholder("Filter…")
    events.fill(f"Materialized value {shown.flow.name} {shown.flow.name}_batches")
    for label in ("batch id", "records", "dead letters", "lag (offsets)", "write time (s)"):
        expect(_text(page, label)).to_be_visible()
    events.fill("Materialized value db events")
    for label in ("dagster/row_count", "rows added", "snapshot id"):
        expect(_text(page, label)).to_be_visible()


def test_the_batches_show_their_ranges(shown: Shown, page: Page) -> None:
    page.goto(shown.batches)
    ranges = page.get_by_role("table").filter(has_text="partition").filter(has_text=shown.flow.topic).last
    expect(ranges).to_contain_text("offsets")
    expect(ranges).to_contain_text(str(GOOD))
    expect(_text(page, "data")).to_be_visible()
    expect(_text(page, "ann@example.com")).to_be_visible()


def test_the_batches_numbers_are_plotted(shown: Shown, page: Page) -> None:
    page.goto(shown.batches)
    page.get_by_role("button", name="Plots").click()
    for title in ("records", "lag (offsets)", "write time (s)"):
        expect(_text(page, title)).to_be_attached()
    expect(page.locator("canvas").first).to_be_visible()


def test_the_table_shows_its_state(shown: Shown, page: Page) -> None:
    snapshot = shown.flow.load_table().current_snapshot()
    assert snapshot is not None
    page.goto(f"{shown.url}/assets/db/events")
    expect(_text(page, "Row count")).to_be_visible()
    for text in (str(GOOD), "id", "long", "text", "string", "Storage", "db.events", str(snapshot.snapshot_id)):
        expect(_text(page, text)).to_be_visible()


def test_too_many_dead_letters_fail_their_check(shown: Shown, page: Page) -> None:
    page.goto(f"{shown.url}/assets/{DEAD_LETTERS.replace('.', '/')}?view=checks")
    expect(_text(page, "dead_letter_rate")).to_be_visible()
    expect(_text(page, "Failed")).to_be_visible()
    expect(_text(page, re.compile(rf"\b{BAD} .*\b{GOOD + BAD} .*\b0\.00%"))).to_be_visible()

"""Sensor, runs and commits with a real daemon; runs that die or fail: nothing is lost or twice, nothing stays stuck."""

from __future__ import annotations

import itertools
import subprocess

import dagster as dg
import pytest

from calve.orchestration.dagster.common.names import ERROR_TAG, WHY_TAG
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG
from calve.orchestration.dagster.sink.names import batches_key
from tests.e2e.dagster.conftest import BATCH, Deployment
from tests.e2e.dagster.stack import BIN, Stack, until
from tests.gate import only

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
POINTS = ("write.after-files", "commit.after-swap")
"""Before a batch is published, and after it; tests/e2e/faults kills everywhere, without Dagster."""


def test_records_arrive_in_the_table_without_anybody_doing_anything(deployment: Deployment, dagster: Stack) -> None:
    flow = deployment.of.healthy
    assert flow.ids() == list(range(BATCH))
    assert not list(dagster.home.rglob("*.db")), "all of it is in PostgreSQL"
    until(lambda: "caught up" in dagster.last_skip(f"{flow.name}_lag"), timeout_s=90, why=dagster.logs)
    run = dagster.runs(flow.name)[0].dagster_run
    assert run.tags["calve/moved"].split()[0] == str(BATCH)
    assert run.tags["calve/reason"].startswith("first run")

    deployment.produce(50, partition=1)
    deployment.check_all_arrive_once_and_no_run_is_open()


@pytest.mark.parametrize("point", only(["commit.after-swap"], of=POINTS))
def test_the_next_run_carries_on_where_one_was_killed(deployment: Deployment, dagster: Stack, point: str) -> None:
    flow, flag = deployment.of.healthy, deployment.flag
    failed_before = len(dagster.runs(flow.name, statuses=[FAILURE]))
    flag.write_text(f"{point}=kill")
    deployment.produce()

    until(lambda: len(dagster.runs(flow.name, statuses=[FAILURE])) > failed_before, timeout_s=120, why=dagster.logs)
    flag.unlink()
    killed = dagster.runs(flow.name, statuses=[FAILURE])[0].dagster_run
    assert ERROR_TAG not in killed.tags, "died by itself instead of being killed"
    deployment.check_all_arrive_once_and_no_run_is_open()


def test_a_reason_that_is_too_long_for_an_index_is_in_the_tags_all_the_same(
    deployment: Deployment, dagster: Stack
) -> None:
    name = deployment.of.unreachable.name
    failed = until(lambda: dagster.runs(name, statuses=[FAILURE]), timeout_s=180, why=dagster.logs)
    tags = failed[0].dagster_run.tags
    assert tags[ERROR_TAG] == "Unreachable"
    assert "127.0.0.1" in tags[WHY_TAG]
    red = (dg.AssetKey(["unreachable", "events"]), FRESHNESS)
    until(lambda: dagster.red(red), timeout_s=60, why=dagster.logs)


@pytest.mark.faults
def test_a_pipeline_that_always_fails_backs_off_and_says_why(deployment: Deployment, dagster: Stack) -> None:
    """Ten minutes are simulated in tests/unit/orchestration/dagster/common/test_trigger.py; this is the real daemon."""
    flow = deployment.of.unreachable
    until(lambda: len(dagster.runs(flow.name, statuses=[FAILURE])) >= 2, timeout_s=180, why=dagster.logs)
    records = sorted(dagster.runs(flow.name), key=lambda record: record.create_timestamp)
    began = [record.create_timestamp.timestamp() for record in records]
    assert len(records) <= 5
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(began))
    assert records[0].dagster_run.tags[ERROR_TAG] == "Unreachable"
    # Between two runs: while one is in progress it says that.
    until(lambda: "127.0.0.1" in dagster.last_skip(f"{flow.name}_lag"), timeout_s=60, why=dagster.logs)


def test_a_terminal_error_stops_until_it_is_answered_and_the_objectives_are_judged_meanwhile(
    deployment: Deployment, dagster: Stack
) -> None:
    flow = deployment.of.stopped
    until(lambda: dagster.runs(flow.name, statuses=[FAILURE]), timeout_s=120, why=dagster.logs)
    resume = f"calve resume {flow.pipeline.path}"
    until(lambda: resume in dagster.last_skip(f"{flow.name}_lag"), timeout_s=120, why=dagster.logs)
    assert len(dagster.runs(flow.name)) == 1
    # None of its runs gets as far as its checks.
    objectives = [(batches_key(flow.pipeline), LAG), (dg.AssetKey(["stopped", "events"]), FRESHNESS)]
    until(lambda: dagster.red(*objectives), timeout_s=60, why=dagster.logs)
    assert "on_bad_record" in dagster.last_skip(f"{flow.name}_lag"), "the setting of its hint"
    subprocess.run([BIN / "calve", "resume", flow.pipeline.path], check=True, capture_output=True)
    until(lambda: len(dagster.runs(flow.name)) == 2, timeout_s=60, why=dagster.logs)

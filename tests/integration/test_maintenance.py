"""Maintenance as its users meet it: `calve maintain`, and the jobs and schedules in Dagster."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.test_utils import create_run_for_test
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from calve.orchestration.cli.main import app
from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.names import STAGE_TAG, job_name, pool, run_tags
from calve.orchestration.dagster.common.operations.maintenance import OWN_TIMES
from calve.orchestration.dagster.sink.names import table_key
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import TASKS
from calve.sink_core.control.events import Paused
from tests.codes import finding, says
from tests.dagster_runs import Done, run
from tests.pipelines import Flow
from tests.support import TopicFactory

SETTINGS = {
    "compact": {"cron": "* * * * *", "lag": "0s", "min_files": 2},
    "manifests": {"cron": "* * * * *", "min_count": 2},
    "expire": {"cron": "* * * * *", "older_than": 0},
    "orphans": {"cron": "* * * * *"},
    "trim": {"older_than": 0},
}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession) -> Flow:
    """Three batches of ten, and settings by which there is something to do for every task but orphans."""
    made = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"maintenance": SETTINGS})
    for start in range(0, 30, 10):
        made.produce(range(start, start + 10))
        made.run()
    return made


def maintain(flow: Flow, *arguments: str) -> Result:
    """The command in this process, on its Spark session."""
    return CliRunner().invoke(app, ["maintain", str(flow.pipeline.path), *arguments])


def calve(flow: Flow, *arguments: str, code: int = 0) -> str:
    done = maintain(flow, *arguments)
    assert done.exit_code == code, done.output
    return done.output


def document(flow: Flow, *arguments: str) -> dict[str, dict[str, Any]]:
    done = maintain(flow, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return {outcome["subject"]: outcome for outcome in json.loads(done.stdout)["done"]}


def observations(done: Done) -> dict[str, dict[str, Any]]:
    found = [e.asset_observation_data.asset_observation for e in done.result.all_events if e.is_asset_observation]
    return {o.asset_key.to_user_string(): {k: v.value for k, v in o.metadata.items()} for o in found}


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_every_task_from_the_command_line(flow: Flow) -> None:
    would = document(flow, "compact", "--dry-run")["db.events"]
    assert (would["changed"], numbers(would["did"])) == (False, [3, 1])
    said = calve(flow, "compact", "--table", "db.events")
    line, row = (line for line in said.splitlines() if line.startswith("db.events"))
    assert (numbers(line), numbers(row)[:2]) == ([3, 1, 1], [3, 1])
    assert "ledger" not in said
    assert document(flow, "manifests", "--dry-run")["db.events"]["changed"] is False
    manifests = document(flow, "manifests")["db.events"]
    assert (manifests["changed"], manifests["after"]["manifests"]) == (True, 1)
    assert document(flow, "expire", "--dry-run")["db.events"]["changed"] is False
    expired = document(flow, "expire")["db.events"]
    assert expired["after"]["snapshots"] < expired["before"]["snapshots"]
    planted = Path(flow.load_table().location().removeprefix("file://")) / "data" / "calve-dead.parquet"
    planted.write_bytes(b"nothing")
    os.utime(planted, (0, 0))
    document(flow, "orphans")
    assert planted.exists()
    assert numbers(document(flow, "orphans")["db.events"]["did"]) == [1, 7]
    assert not planted.exists()
    trimmed = document(flow, "trim")[flow.pipeline.control_topic]
    assert (trimmed["changed"], trimmed["after"]["events"] < trimmed["before"]["events"]) == (True, True)
    alive = document(flow, "keep-alive")[flow.pipeline.group]
    assert alive["changed"] is False
    flow.produce(range(30, 40))
    flow.run()
    assert flow.ids() == list(range(40))


def test_nothing_to_do_ends_well_and_says_so(flow: Flow) -> None:
    calve(flow, "compact")
    again = document(flow, "compact")
    assert {outcome["changed"] for outcome in again.values()} == {False}
    assert all(outcome["did"] for outcome in again.values())


def test_a_pipeline_that_never_ran_has_nothing_to_do(flow: Flow, kafka_topic: TopicFactory, tmp_path: Path) -> None:
    fresh = Flow.create(tmp_path, flow.bootstrap, kafka_topic(1))
    for task in TASKS:
        outcome = document(fresh, task.replace("_", "-"))[fresh.name]
        assert (outcome["changed"], fresh.name in outcome["did"]) == (False, True)


def test_what_cannot_be_done_is_said(flow: Flow) -> None:
    says(calve(flow, "compact", "--table", "db.evnts", code=2), Code.NO_SUCH_NAME, "db.evnts", flow.name)
    first = flow.load_table().metadata.snapshots[0].snapshot_id
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    said = calve(flow, "expire", code=1)
    says(said, finding("table-rolled-back"), "db.events")
    assert flow.pipeline.ledger_table in said, "the others are done"


def test_a_job_tells_what_it_changed_and_the_next_that_there_is_nothing(flow: Flow, instance: DagsterInstance) -> None:
    done = run(flow, instance, "compact")
    assert done.result.success
    assert done.tags[STAGE_TAG] == "compact"
    told = observations(done)
    events = told["db/events"]
    assert (events["data files before"], events["data files after"]) == (3, 1)
    assert {"data bytes", "delete files", "manifests", "snapshots", "metadata bytes"} <= {
        name.removesuffix(" before") for name in events
    }
    assert f"calve/{flow.pipeline.ledger_table.split('.')[1]}" in told
    again = run(flow, instance, "compact")
    assert again.result.success
    nothing = observations(again)["db/events"]
    assert nothing["did"]
    assert nothing.get("data files after") == nothing.get("data files before")


@pytest.mark.parametrize("task", TASKS)
def test_each_job_runs(flow: Flow, instance: DagsterInstance, task: str) -> None:
    done = run(flow, instance, task)
    assert done.result.success
    assert flow.ids() == list(range(30))


def test_a_table_with_a_finding_makes_the_run_red_and_the_others_are_done(
    flow: Flow, instance: DagsterInstance
) -> None:
    first = flow.load_table().metadata.snapshots[0].snapshot_id
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    done = run(flow, instance, "expire")
    assert not done.result.success
    assert "table-rolled-back" in str(done.failure)
    assert f"calve/{flow.pipeline.ledger_table.split('.')[1]}" in observations(done)


def test_one_pool_for_all_tasks_and_a_time_limit_of_their_own(flow: Flow) -> None:
    defs = build_pipeline_defs(flow.pipeline)
    for task in TASKS:
        job = defs.resolve_job_def(job_name(flow.pipeline, task))
        assert {node.definition.pool for node in job.nodes} == {pool(flow.pipeline, "maintenance")}  # pyright: ignore
        assert job.tags["dagster/max_runtime"] == "3600"


def test_schedules_have_the_times_of_the_file_and_obey_a_pause(flow: Flow, instance: DagsterInstance) -> None:
    defs = build_pipeline_defs(flow.pipeline)
    schedules = {task: defs.resolve_schedule_def(f"{job_name(flow.pipeline, task)}_schedule") for task in TASKS}
    assert schedules["compact"].cron_schedule == "* * * * *"
    assert schedules["trim"].cron_schedule == schedules["keep_alive"].cron_schedule
    assert str(schedules["trim"].cron_schedule).endswith(" 4 * * *")

    def answers() -> dict[str, bool]:
        context = dg.build_schedule_context(instance, repository_def=defs.get_repository_def())
        return {task: bool(s.evaluate_tick(context).run_requests) for task, s in schedules.items()}

    assert set(answers().values()) == {True}
    # One that takes longer than its interval is not asked for again meanwhile.
    run = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED, tags=run_tags(flow.pipeline, "compact"))
    assert [task for task, asked in answers().items() if not asked] == ["compact"]
    instance.delete_run(run.run_id)
    with flow.session() as session:
        session.log.append(Paused(pipeline_id=session.bind().pipeline_id, by="ann", reason="upgrade"))
    assert [task for task, wanted in answers().items() if wanted] == ["keep_alive"]


def test_all_is_scheduled_unless_it_is_off_and_can_be_launched_all_the_same(flow: Flow) -> None:
    plain = flow.but(extra={"maintenance": {"off": ["compact", "orphans"]}})
    defs = build_pipeline_defs(plain.pipeline)
    names = {schedule.name for schedule in defs.get_repository_def().schedule_defs}
    scheduled = {task for task in TASKS if f"{job_name(plain.pipeline, task)}_schedule" in names}
    assert scheduled == {"manifests", "expire", "trim", "keep_alive"}
    assert table_key(plain.pipeline, "db.events") == dg.AssetKey(["db", "events"])
    assert {job_name(plain.pipeline, task) for task in TASKS} <= {
        job.name for job in defs.get_repository_def().get_all_jobs()
    }


def test_each_task_has_a_time_of_the_pipeline_s_own(flow: Flow) -> None:
    pipeline = flow.but(extra={}).pipeline
    assert set(OWN_TIMES) == set(TASKS)
    schedule = build_pipeline_defs(pipeline).resolve_schedule_def(f"{job_name(pipeline, 'compact')}_schedule")
    assert str(schedule.cron_schedule).endswith(" * * * *")
    assert schedule.cron_schedule != "* * * * *"

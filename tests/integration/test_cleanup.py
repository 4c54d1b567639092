"""Old runs on a real Dagster instance. They are made old as Dagster's own tests do it: run while its clock stands."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.test_utils import create_run_for_test, freeze_time

from calve.orchestration.dagster import cleanup
from calve.orchestration.dagster.common.names import PIPELINE_TAG

ASSET = dg.AssetKey(["air", "flights"])
CHECK = dg.AssetCheckKey(ASSET, "lag")
OF_A_PIPELINE = {PIPELINE_TAG: "flights"}


def run(
    instance: DagsterInstance,
    *events: dg.AssetMaterialization | dg.AssetCheckEvaluation,
    days: float,
    job: str = "flights_ingest_job",
    tags: Mapping[str, str] = OF_A_PIPELINE,
    fails: bool = False,
) -> str:
    """A run of `days` ago; its id."""

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        print("a line of output")  # noqa: T201 - it is to be captured
        for event in events:
            context.log_event(event)
        if fails:
            raise dg.Failure("as asked", allow_retries=False)

    @dg.job(name=job, tags=tags)
    def working() -> None:
        work()

    with freeze_time(datetime.now(UTC) - timedelta(days=days)):
        done = working.execute_in_process(instance=instance, raise_on_error=False)
    assert done.success is not fails
    return done.run_id


def materialized() -> dg.AssetMaterialization:
    return dg.AssetMaterialization(ASSET)


def evaluated() -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(asset_key=CHECK.asset_key, check_name=CHECK.name, passed=True)


def clean(instance: DagsterInstance, *, run_config: Mapping[str, Any] | None = None, **given: int) -> dict[str, object]:
    """Run the job, which must be green; the metadata of its output."""
    job = cleanup.cleanup_job(**given).resolve_job_def(cleanup.JOB)  # pyright: ignore[reportArgumentType]
    done = job.execute_in_process(instance=instance, run_config=run_config)
    assert done.success
    [output] = [e for e in done.all_events if e.event_type == dg.DagsterEventType.STEP_OUTPUT]
    return {key: value.value for key, value in output.step_output_data.metadata.items()}


def there(instance: DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs() if run.job_name != cleanup.JOB}


def files_of(tmp_path: Path, run_id: str) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if run_id in str(path.relative_to(tmp_path))]


def test_dagster_keeps_an_assets_state_but_forgets_its_history_when_a_run_is_deleted(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    """What the clean-up rests on; with another Dagster it may have less to do, or more."""
    first, last = (run(instance, materialized(), evaluated(), days=0) for _ in range(2))
    instance.delete_run(last)
    assert instance.all_logs(last) == []
    latest = instance.get_latest_materialization_event(ASSET)
    assert latest is not None
    assert latest.run_id == last
    [check] = instance.event_log_storage.get_asset_check_summary_records([CHECK]).values()
    assert check.last_completed_run_id == last
    assert [event.run_id for event in instance.fetch_materializations(ASSET, limit=9).records] == [first]
    assert files_of(tmp_path, last), "Dagster deletes the files by itself now"


def test_old_runs_go_with_their_events_and_files_and_the_newest_of_each_job_stay(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    old = [run(instance, days=30), run(instance, days=29, fails=True)]
    old_commit = run(instance, days=31, job="flights_commit_job")
    kept = {
        *(run(instance, days=28, fails=True) for _ in range(2)),
        *(run(instance, days=20, job="flights_commit_job") for _ in range(2)),
    }
    events = sum(len(instance.all_logs(run_id)) for run_id in [*old, old_commit])
    found = clean(instance, runs_older_than_days=14, keep_last=2)
    assert found == {"runs deleted": 3, "events deleted": events, "old runs kept": 0}
    assert there(instance) == kept
    assert [files_of(tmp_path, run_id) for run_id in [*old, old_commit]] == [[], [], []]
    assert all(instance.all_logs(run_id) and files_of(tmp_path, run_id) for run_id in kept)


def test_young_runs_runs_of_others_and_runs_under_way_stay(instance: DagsterInstance) -> None:
    expected = {run(instance, days=13.9), run(instance, days=30, tags={})}
    with freeze_time(datetime.now(UTC) - timedelta(days=30)):
        for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED):
            made = create_run_for_test(instance, job_name="flights_ingest_job", status=status, tags=OF_A_PIPELINE)
            expected.add(made.run_id)
    run(instance, days=14.1)
    expected.add(run(instance, days=0))
    assert clean(instance, keep_last=1)["runs deleted"] == 1
    assert there(instance) == expected


def test_the_runs_that_hold_an_assets_latest_and_a_checks_latest_stay(instance: DagsterInstance) -> None:
    run(instance, materialized(), evaluated(), days=40)
    materialization = run(instance, materialized(), days=39)
    evaluation = run(instance, evaluated(), days=38)
    run(instance, days=37)
    newest = run(instance, days=36)
    found = clean(instance, keep_last=1)
    assert (found["runs deleted"], found["old runs kept"]) == (2, 2)
    assert there(instance) == {materialization, evaluation, newest}
    [record] = instance.fetch_materializations(ASSET, limit=9).records
    assert record.run_id == materialization
    [check] = instance.event_log_storage.get_asset_check_summary_records([CHECK]).values()
    assert check.last_completed_run_id == evaluation

    later = run(instance, materialized(), evaluated(), days=20)
    assert clean(instance, keep_last=1)["runs deleted"] == 3
    assert there(instance) == {later}


def test_it_goes_through_all_pages_past_what_stays(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_PAGE", 2)
    monkeypatch.setattr(cleanup, "_EVENTS_PAGE", 5)
    staying = run(instance, materialized(), evaluated(), days=40)
    events = sum(len(instance.all_logs(run(instance, days=30))) for _ in range(6))
    newest = run(instance, days=29)
    found = clean(instance, keep_last=1)
    assert found == {"runs deleted": 6, "events deleted": events, "old runs kept": 1}
    assert there(instance) == {staying, newest}


def test_no_more_than_most_runs_at_a_time_and_the_oldest_first(instance: DagsterInstance) -> None:
    runs = [run(instance, days=30 - at) for at in range(4)]
    most = {"ops": {cleanup.OP: {"config": {"most_runs": 2, "keep_last": 1}}}}
    assert clean(instance, run_config=most)["runs deleted"] == 2
    assert there(instance) == set(runs[2:])
    assert clean(instance, run_config=most)["runs deleted"] == 1
    assert there(instance) == set(runs[3:])


@pytest.mark.parametrize("empty", [True, False])
def test_nothing_to_delete_is_green_and_says_so(
    instance: DagsterInstance, capsys: pytest.CaptureFixture[str], empty: bool
) -> None:
    expected = set[str]() if empty else {run(instance, days=30)}
    assert clean(instance) == {"runs deleted": 0, "events deleted": 0, "old runs kept": 0}
    assert there(instance) == expected
    last = instance.get_runs(limit=1)[0]
    said = [entry.user_message for entry in instance.all_logs(last.run_id)]
    # From before when a run may go.
    assert len([line for line in said if re.search(r"\b\d{4}-\d\d-\d\d\b", line)]) == 1


def test_the_schedule_and_the_launchpad_begin_with_what_the_function_was_given() -> None:
    definitions = cleanup.cleanup_job(runs_older_than_days=3, keep_last=7, cron="5 1 * * *")
    schedule = definitions.resolve_schedule_def(f"{cleanup.JOB}_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("5 1 * * *", cleanup.JOB)
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    config = definitions.resolve_job_def(cleanup.JOB).run_config
    assert config is not None
    assert config["ops"] == {cleanup.OP: {"config": {"runs_older_than_days": 3, "keep_last": 7, "most_runs": 5000}}}


def test_a_run_without_configuration_of_its_own_takes_what_the_function_was_given(instance: DagsterInstance) -> None:
    """As a schedule starts it."""
    run(instance, days=5)
    newest = run(instance, days=4)
    job = cleanup.cleanup_job(runs_older_than_days=3, keep_last=1).resolve_job_def(cleanup.JOB)
    assert job.execute_in_process(instance=instance, run_config={}).success
    assert there(instance) == {newest}

"""What runs leave as long as they live, and what becomes of a process whose run is over."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from calve.orchestration.dagster.common.names import STEP_TAG, run_tags
from calve.orchestration.dagster.common.runs import failures_told
from calve.orchestration.dagster.common.signs import EXIT_AFTER, INTERRUPTED_AFTER, action, give, in_process, signs
from calve.orchestration.dagster.sink.names import INGEST
from calve.sink_core.config.load import load
from tests.documents import ROOT
from tests.e2e.dagster.stack import until

PIPELINE = load(ROOT / "examples/shop/pipeline.yaml")
Status = dg.DagsterRunStatus


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.instance_for_test() as opened:
        yield opened


def test_each_sign_is_another_and_those_of_other_runs_stay(instance: dg.DagsterInstance) -> None:
    give(instance, "p", "one")
    give(instance, "p", "two")
    before = signs(instance, "p")
    give(instance, "p", "one")
    after = signs(instance, "p")
    assert before["one"] != after["one"]
    assert before["two"] == after["two"]
    assert signs(instance, "other") == {}


def test_what_is_kept_does_not_grow_with_runs_and_the_newest_is_kept(instance: dg.DagsterInstance) -> None:
    for number in range(150):
        give(instance, "p", f"run {number}")
    kept = list(signs(instance, "p"))
    assert kept == [f"run {number}" for number in range(50, 150)]


@dg.op
def moves(context: dg.OpExecutionContext) -> None:
    # Before it is opened: whatever a run of Calve's jobs does, it gives signs.
    at_first = dict(signs(context.instance, PIPELINE.name))
    with failures_told(context.instance, context.run, PIPELINE):
        run = context.instance.get_run_by_id(context.run.run_id)
        assert run is not None
        context.add_output_metadata(
            {
                "before": context.run.run_id in at_first,
                "in": context.run.run_id in signs(context.instance, PIPELINE.name),
                "tag": run.tags.get(STEP_TAG, "none"),
            }
        )


@dg.job(tags=run_tags(PIPELINE, INGEST), executor_def=in_process)
def of_calve() -> None:
    moves()


@dg.job(executor_def=dg.in_process_executor)
def of_others() -> None:
    moves()


def job_of_calve() -> dg.JobDefinition:
    return of_calve


def job_of_others() -> dg.JobDefinition:
    return of_others


@pytest.mark.parametrize(
    ("job", "seen"), [(job_of_calve, (True, True, "none")), (job_of_others, (False, True, PIPELINE.name))]
)
def test_a_run_gives_signs_from_its_start_or_where_it_is_not_calves_in_its_steps(
    instance: dg.DagsterInstance, job: Callable[[], dg.JobDefinition], seen: tuple[bool, bool, str]
) -> None:
    with dg.execute_job(dg.reconstructable(job), instance) as done:
        assert done.success
        metadata = next(e.step_output_data.metadata for e in done.all_events if e.is_successful_output)
        assert tuple(metadata[name].value for name in ("before", "in", "tag")) == seen
        run = instance.get_run_by_id(done.run_id)
    assert run is not None
    assert not run.tags.get(STEP_TAG), "what else the run does is not known"


@pytest.mark.parametrize("status", [Status.FAILURE, Status.CANCELED])
def test_a_process_that_wakes_up_after_its_run_is_interrupted_and_then_ended(status: dg.DagsterRunStatus) -> None:
    assert [action(status, seen) for seen in range(EXIT_AFTER + 1)] == [
        "interrupt",
        *["wait"] * (EXIT_AFTER - 1),
        "exit",
    ]


def test_one_that_is_to_be_cancelled_is_given_time_to_hear_of_it_from_its_code_server() -> None:
    expected = [*["wait"] * INTERRUPTED_AFTER, "interrupt", *["wait"] * (EXIT_AFTER - 1), "exit"]
    assert [action(Status.CANCELING, seen) for seen in range(len(expected))] == expected


@pytest.mark.parametrize("status", [Status.STARTED, Status.SUCCESS, Status.STARTING, None])
def test_a_run_in_progress_goes_on_and_so_does_one_whose_storage_is_not_reached(
    status: dg.DagsterRunStatus | None,
) -> None:
    assert action(status, 99) is None


OUTLIVING = """
import sys, time
from dagster import DagsterInstance
from calve.orchestration.dagster.common import signs
signs.EVERY_S = 0.1
with DagsterInstance.get() as instance, signs.alive(instance, instance.get_run_by_id(sys.argv[1]), "p"):
    while True:
        try:
            time.sleep(600)
        except BaseException:
            if sys.argv[2] == "hears":
                raise
"""


@pytest.mark.parametrize(
    ("status", "listens", "ended_by", "left"),
    [
        (Status.FAILURE, "hears", signal.SIGINT, Status.FAILURE),
        (Status.FAILURE, "is deaf", signal.SIGKILL, Status.FAILURE),
        (Status.CANCELING, "is deaf", signal.SIGKILL, Status.CANCELED),
    ],
)
def test_a_process_that_outlives_its_run_ends(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    listens: str,
    ended_by: signal.Signals,
    left: dg.DagsterRunStatus,
) -> None:
    run = create_run_for_test(instance, "job", status=Status.STARTED)
    environment = {**os.environ, "DAGSTER_HOME": instance.root_directory, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", OUTLIVING, run.run_id, listens]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: run.run_id in signs(instance, "p"), timeout_s=60)
            assert process.poll() is None
            if status == Status.CANCELING:
                instance.report_run_canceling(run)
            else:
                instance.report_run_failed(run)
            assert process.wait(60) == -ended_by
        finally:
            process.kill()
    over = instance.get_run_by_id(run.run_id)
    assert over is not None
    assert over.status == left

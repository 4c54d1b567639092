"""What an instance knows of a pipeline's runs, and what a failed run says of itself."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import signal
import time
from collections.abc import Generator

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from calve.orchestration.dagster.common.names import WHY_TAG, job_name, run_tags
from calve.orchestration.dagster.common.runs import IN_PROGRESS, failures_told, last_runs
from calve.orchestration.dagster.common.trigger import LastRuns
from calve.orchestration.dagster.sink.names import INGEST
from calve.sink_core.config.load import load
from calve.sink_core.errors import FindingError, Unreachable
from calve.sink_core.hidden import keep_secret
from tests.codes import names
from tests.documents import ROOT

PIPELINE = load(ROOT / "examples/shop/pipeline.yaml")
TAGS = run_tags(PIPELINE, INGEST)
GONE = Unreachable("no answer from broker:9092", hint="start it")
ROLLED_BACK = FindingError("table-rolled-back", "db.events", stored="1", found="2", hint="calve resolve p.yaml")


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def end(instance: dg.DagsterInstance, error: Exception | None) -> str:
    """A run that ends with this error, or well; its id."""

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        with failures_told(context.instance, context.run, PIPELINE):
            if error is not None:
                raise error

    @dg.job(name=job_name(PIPELINE, INGEST), tags=TAGS)
    def job() -> None:
        work()

    done = job.execute_in_process(instance=instance, raise_on_error=False)
    assert done.success == (error is None)
    return done.run_id


def look(instance: dg.DagsterInstance) -> LastRuns:
    return last_runs(instance, PIPELINE, INGEST)


# Dagster queues only runs of a code location; tests/e2e/dagster has those.
@pytest.mark.parametrize("status", [s for s in IN_PROGRESS if s != dg.DagsterRunStatus.QUEUED])
def test_a_run_under_way_is_found_with_its_age(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> None:
    before_s = time.time()
    run = create_run_for_test(instance, "job", status=status, tags=TAGS)
    found = look(instance)
    assert found == LastRuns(in_flight=run.run_id, in_flight_s=found.in_flight_s)
    assert before_s - 1 < found.in_flight_s < time.time() + 1, "whatever time zone the instance stores"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE])
def test_runs_of_others_do_not_matter(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> None:
    for tags in (run_tags(PIPELINE, "commit"), {**TAGS, "calve/pipeline": "other"}, {}):
        create_run_for_test(instance, "job", status=status, tags=tags)
    assert look(instance) == LastRuns()


def test_failures_are_counted_back_to_the_last_success_and_the_newest_one_speaks(instance: dg.DagsterInstance) -> None:
    assert look(instance) == LastRuns()
    for number, error in enumerate((ROLLED_BACK, Unreachable("another"), GONE), start=1):
        before_s = time.time()
        end(instance, error)
        found = look(instance)
        assert before_s - 1 < found.failed_s < time.time() + 1
        assert (found.in_flight, found.failures, found.why) == (None, number, error.message)
        assert (found.terminal, found.remedy) == (error is ROLLED_BACK, error.hint)
        assert found.config == PIPELINE.config_fingerprint
    end(instance, None)
    assert look(instance) == LastRuns()
    end(instance, GONE)
    assert look(instance).failures == 1


def test_a_failure_without_an_explanation_names_the_run(instance: dg.DagsterInstance) -> None:
    run_id = end(instance, RuntimeError("no error of ours"))
    found = look(instance)
    assert (found.failures, found.terminal, found.remedy) == (1, False, "")
    names(found.why, run_id[:8])


@pytest.mark.parametrize("ours", [True, False], ids=["Calve's", "a library's"])
def test_what_dagster_keeps_of_a_failure_holds_no_secret(instance: dg.DagsterInstance, ours: bool) -> None:
    secret = "s3cret/of@the%run"
    keep_secret(secret)
    low = OSError(7, f"no way to {secret}")
    error: Exception = Unreachable(f"not with {secret}") if ours else RuntimeError(f"not with {secret}")
    error.__cause__ = low
    run_id = end(instance, error)
    kept = "".join(entry.to_json() for entry in instance.all_logs(run_id)) + str(look(instance))
    assert "no way to ***" in kept
    assert "not with ***" in kept
    assert "s3cret" not in kept


@pytest.mark.parametrize(
    ("tags", "ends_as"),
    [({"dagster/sensor_name": "lag"}, dg.DagsterRunStatus.CANCELED), ({}, dg.DagsterRunStatus.FAILURE)],
    ids=["the sensor starts the next", "Dagster starts it again"],
)
def test_a_run_that_is_told_to_end_says_what_goes_on_where(
    instance: dg.DagsterInstance, tags: dict[str, str], ends_as: dg.DagsterRunStatus
) -> None:
    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        with failures_told(context.instance, context.run, PIPELINE):
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("it goes on")

    @dg.job(name=job_name(PIPELINE, INGEST), tags={**TAGS, **tags})
    def job() -> None:
        work()

    job.execute_in_process(instance=instance, raise_on_error=False)
    (run,) = instance.get_runs()
    assert run.status == ends_as
    assert run.tags[WHY_TAG]
    assert look(instance).failures == (0 if ends_as == dg.DagsterRunStatus.CANCELED else 1)

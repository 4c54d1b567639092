"""Which failed runs are posted, and what of them, by what an instance has of the pipeline's runs."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from hypothesis import given
from hypothesis import strategies as st

from calve.orchestration.dagster.alerts import IN_A_ROW, Alert, alert_of, folded_if_due
from calve.orchestration.dagster.common.names import ERROR_TAG, PIPELINE_TAG, STAGE_TAG, TERMINAL_TAG
from calve.orchestration.dagster.common.runs import UNEXPLAINED, error_tags
from calve.sink_core.errors import BadRecord, CalveError, FindingError, Unreachable
from tests.codes import names

SUCCESS = None
BAD = BadRecord("flights[3]@17: no number in 'delay'", hint="calve inspect flights 3 17")
GONE = Unreachable("no answer from broker:9092", hint="start it")


@pytest.mark.parametrize(
    ("earlier", "posted"),
    [
        ([], True),
        ([SUCCESS], True),
        (["BadRecord"], False),
        (["BadRecord", "BadRecord"], False),
        (["ConfigError", "Unreachable"], True),
        (["ConfigError", "BadRecord"], False),
        (["Unreachable", SUCCESS, "BadRecord"], True),
    ],
)
def test_an_error_that_a_person_must_end_is_posted_once_until_a_success(
    earlier: list[str | None], posted: bool
) -> None:
    assert folded_if_due("BadRecord", terminal=True, earlier=earlier) == (0 if posted else None)


@pytest.mark.parametrize(
    ("earlier", "folded"),
    [
        ([], None),
        (["Unreachable"], None),
        (["Unreachable", "Unreachable"], 2),
        (["Unreachable", "Unreachable", "Unreachable"], None),
        (["Unreachable", SUCCESS, "Unreachable"], None),
        (["Unreachable", "unexplained"], None),
        (["Unreachable", "unexplained", "Unreachable"], 2),
        (["Unreachable", "Unreachable", SUCCESS, "Unreachable"], 2),
    ],
)
def test_an_error_that_may_pass_is_posted_at_its_third_run(earlier: list[str | None], folded: int | None) -> None:
    assert folded_if_due("Unreachable", terminal=False, earlier=earlier) == folded


@given(st.lists(st.sampled_from(["A", "B", SUCCESS])), st.booleans())
def test_between_two_successes_each_error_is_posted_once_at_most(runs: list[str | None], terminal: bool) -> None:
    """`runs` oldest first, as they come."""
    posted: list[str] = []
    for at, kind in enumerate(runs):
        if kind is SUCCESS:
            posted.clear()
        elif folded_if_due(kind, terminal=terminal, earlier=runs[:at][::-1]) is not None:
            assert kind not in posted
            posted.append(kind)
    since = runs[len(runs) - runs[::-1].index(SUCCESS) :] if SUCCESS in runs else runs
    needed = 1 if terminal else IN_A_ROW
    assert sorted(posted) == [kind for kind in ("A", "B") if since.count(kind) >= needed]


def test_the_key_is_the_same_whatever_the_message() -> None:
    finding = [FindingError("TOPIC_RECREATED", "flights", stored=at, found="x", hint="") for at in ("1", "2")]
    assert {error_tags(error)[ERROR_TAG] for error in finding} == {"TOPIC_RECREATED"}
    assert error_tags(BadRecord("first"))[ERROR_TAG] == error_tags(BadRecord("second"))[ERROR_TAG] == "BadRecord"
    assert error_tags(Unreachable("gone"))[TERMINAL_TAG] == "false"


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def end(
    instance: dg.DagsterInstance,
    error: CalveError | str | None,
    *,
    stage: str = "ingest",
    pipeline: str | None = "flights",
) -> Alert | None:
    """A run that ends so; `error` is a text where no error of Calve's is told. What is to be posted of it."""
    tags = {PIPELINE_TAG: pipeline, STAGE_TAG: stage} if pipeline else {}
    told = error_tags(error) if isinstance(error, CalveError) else {}
    status = dg.DagsterRunStatus.SUCCESS if error is None else dg.DagsterRunStatus.FAILURE
    run = create_run_for_test(instance, f"flights_{stage}_job", status=status, tags=tags | told)
    record = instance.get_run_record_by_id(run.run_id)
    assert record is not None
    return alert_of(instance, record) if error else None


def test_an_alert_says_what_failed_where_and_what_to_do(instance: dg.DagsterInstance) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    alert = end(instance, BAD)
    [run] = instance.get_runs()
    assert alert is not None
    assert alert == Alert(
        "flights", "ingest", "BadRecord", BAD.message, BAD.hint, run.run_id, "flights_ingest_job", alert.at, 0
    )
    assert begun <= datetime.fromisoformat(alert.at) <= datetime.now(UTC)


def test_runs_of_another_stage_or_pipeline_neither_silence_an_error_nor_end_its_silence(
    instance: dg.DagsterInstance,
) -> None:
    for others in ({}, {"stage": "commit"}, {"pipeline": "trains"}):
        assert end(instance, BAD, **others) is not None
        end(instance, None, stage="checks")
        assert end(instance, BAD, **others) is None
    end(instance, None)
    assert end(instance, BAD) is not None


def test_an_unexplained_failure_is_posted_at_its_third_run_and_makes_nothing_up(instance: dg.DagsterInstance) -> None:
    first, second, third, fourth = (end(instance, "no error of ours") for _ in range(4))
    assert (first, second, fourth) == (None, None, None)
    assert third is not None
    assert (third.error, third.remedy, third.folded) == (UNEXPLAINED, "", 2)
    assert "no error of ours" not in third.message
    counted = [end(instance, GONE) for _ in range(3)]
    assert [alert and alert.folded for alert in counted] == [None, None, 2]


def test_a_finding_is_posted_by_its_name_beside_an_error_of_the_same_stage(instance: dg.DagsterInstance) -> None:
    end(instance, BAD)
    lost = end(instance, FindingError("positions-missing", "flights", stored="17", found="nothing", hint="resume"))
    assert lost is not None
    assert (lost.error, lost.remedy) == ("positions-missing", "resume")
    names(lost.message, "flights", 17)


def test_tables_that_fail_alone_are_named_each_with_an_alert_of_its_own(instance: dg.DagsterInstance) -> None:
    def alone(*tables: str) -> Alert | None:
        error = BadRecord("no such column")
        error.alone = tables
        return end(instance, error)

    first, again, more = alone("db.a"), alone("db.a"), alone("db.a", "db.b")
    assert first is not None
    assert more is not None
    assert (first.error, first.alone, again, more.alone) == ("BadRecord", "db.a", None, "db.a, db.b")


def test_runs_that_are_no_pipeline_s_are_not_looked_at(instance: dg.DagsterInstance) -> None:
    assert [end(instance, error, pipeline=None) for error in (BAD, GONE, GONE, GONE)] == [None] * 4

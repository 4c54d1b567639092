"""How long runs have been silent, by the clock of whoever looks; which of them a look ends, and what is known then."""

from __future__ import annotations

from collections.abc import Generator

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from calve.orchestration.dagster.common.dead import IMPORTED_S, LIMITS_S, MOST_S, Silences, end_the_dead, limit_s
from calve.orchestration.dagster.common.names import ERROR_TAG, STEP_TAG, TERMINAL_TAG, WHY_TAG, run_tags
from calve.orchestration.dagster.common.runs import IN_PROGRESS
from calve.orchestration.dagster.common.signs import give
from calve.sink_core.config.load import load
from tests.documents import ROOT

PIPELINE = load(ROOT / "examples/shop/pipeline.yaml")
NAME = PIPELINE.name
NOW = 1_800_000_000.0
TICK_S = 5.0
Status = dg.DagsterRunStatus
STAGES = ("ingest", "commit", "replay_hours", "compact", "checks")


def silent_s(looks: list[tuple[float, str]]) -> float:
    """Of a run, after looks at these times with these marks."""
    silences = Silences()
    for at_s, mark in looks:
        silences = silences.after({"run": mark}, at_s)
    return silences.of["run"].seconds


def test_a_run_that_gives_signs_is_never_silent_for_long() -> None:
    assert silent_s([(NOW + i * TICK_S, f"STARTED {i // 2}") for i in range(99)]) <= TICK_S


def test_silence_adds_up_from_look_to_look_and_ends_with_a_sign() -> None:
    still = [(NOW + i * TICK_S, "STARTED 7") for i in range(10)]
    assert silent_s(still) == 45
    assert silent_s([*still, (NOW + 50, "STARTED 8")]) == 0
    assert silent_s([*still, (NOW + 50, "CANCELING 7")]) == 0, "whoever cancels it gives it time"


@pytest.mark.parametrize(("jump_s", "counts_s"), [(86_400, MOST_S), (-86_400, 0), (TICK_S, TICK_S)])
def test_a_clock_that_was_set_or_a_machine_that_slept_kills_no_run(jump_s: float, counts_s: float) -> None:
    assert silent_s([(NOW, "STARTED 7"), (NOW + jump_s, "STARTED 7")]) == counts_s


def test_a_run_is_forgotten_once_it_is_over() -> None:
    assert Silences().after({"run": "STARTED 7"}, NOW).after({}, NOW + TICK_S).of == {}


def test_a_run_that_waits_for_its_process_has_more_time_and_one_in_the_queue_has_all() -> None:
    started = limit_s(Status.STARTED, by_code_server=True)
    starting = [limit_s(Status.STARTING, by_code_server=by) for by in (True, False)]
    assert started == limit_s(Status.STARTED, by_code_server=False) < starting[0] == IMPORTED_S < starting[1]
    assert Status.QUEUED not in LIMITS_S


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def look_for(instance: dg.DagsterInstance, seconds: float, *alive: str) -> list[str]:
    """The lines of all looks of so many seconds, in which these runs give signs."""
    silences, ended = Silences(), list[str]()
    for tick in range(int(seconds / TICK_S) + 1):
        for run_id in alive:
            give(instance, NAME, run_id)
        looked = end_the_dead(instance, NAME, silences, NOW + tick * TICK_S)
        silences, ended = looked.silences, [*ended, *looked.ended]
    return ended


def run_of(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def test_dead_runs_of_every_stage_end_and_the_living_and_those_of_others_go_on(instance: dg.DagsterInstance) -> None:
    dead, living = (
        [create_run_for_test(instance, "job", status=Status.STARTED, tags=run_tags(PIPELINE, each)) for each in STAGES]
        for _ in range(2)
    )
    of_others = [
        create_run_for_test(instance, "job", status=Status.STARTED, tags=tags)
        for tags in ({}, {**run_tags(PIPELINE, "ingest"), "calve/pipeline": "other"}, {STEP_TAG: ""})
    ]
    ended = look_for(instance, 60, *(run.run_id for run in living))
    assert len(ended) == len(dead)
    assert {run_of(instance, run.run_id).status for run in dead} == {Status.FAILURE}
    assert {run_of(instance, run.run_id).status for run in [*living, *of_others]} == {Status.STARTED}


def test_the_reason_is_there_for_the_sensor_and_for_alerts(instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(instance, "job", status=Status.STARTED, tags=run_tags(PIPELINE, "ingest"))
    look_for(instance, 60)
    tags = run_of(instance, run.run_id).tags
    assert (tags[ERROR_TAG], tags[TERMINAL_TAG]) == ("RetriableError", "false")
    assert run.run_id[:8] in tags[WHY_TAG]


def test_a_run_that_died_in_a_step_of_calves_ends_too(instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(instance, "__ASSET_JOB", status=Status.STARTED, tags={STEP_TAG: NAME})
    assert len(look_for(instance, 60)) == 1
    assert run_of(instance, run.run_id).status == Status.FAILURE


@pytest.mark.parametrize("status", [each for each in IN_PROGRESS if each != Status.QUEUED])
def test_whatever_a_run_died_in_it_ends_at_its_limit_and_not_before(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    run = create_run_for_test(instance, "job", status=status, tags=run_tags(PIPELINE, "ingest"))
    assert look_for(instance, LIMITS_S[status] - TICK_S) == []
    assert run_of(instance, run.run_id).status == status
    assert len(look_for(instance, LIMITS_S[status])) == 1
    ends_as = Status.CANCELED if status == Status.CANCELING else Status.FAILURE
    assert run_of(instance, run.run_id).status == ends_as


def test_the_slots_of_its_pools_are_free(instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(instance, "job", status=Status.STARTED, tags=run_tags(PIPELINE, "ingest"))
    storage = instance.event_log_storage
    storage.set_concurrency_slots("pool", 1)
    storage.claim_concurrency_slot("pool", run.run_id, "step")
    assert storage.get_concurrency_info("pool").active_slot_count == 1
    look_for(instance, 60)
    assert storage.get_concurrency_info("pool").active_slot_count == 0

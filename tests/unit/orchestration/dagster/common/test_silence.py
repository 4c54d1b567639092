"""How long runs have been silent, by the clock of whoever looks."""

from __future__ import annotations

import pytest
from dagster import DagsterRunStatus

from calve.orchestration.dagster.common.silence import IMPORTED_S, LIMITS_S, MOST_S, Silences, limit_s
from calve.orchestration.dagster.common.trigger import Memory

NOW = 1_800_000_000.0
TICK_S = 5.0


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


def test_the_next_code_server_goes_on_counting() -> None:
    silences = Silences().after({"run": "STARTED 7"}, NOW).after({"run": "STARTED 7"}, NOW + TICK_S)
    assert Memory.loads(Memory(silences=silences).dumps()).silences == silences


def test_a_run_that_waits_for_its_process_has_more_time_and_one_in_the_queue_has_all() -> None:
    started = limit_s(DagsterRunStatus.STARTED, by_code_server=True)
    starting = [limit_s(DagsterRunStatus.STARTING, by_code_server=by) for by in (True, False)]
    assert started == limit_s(DagsterRunStatus.STARTED, by_code_server=False) < starting[0] == IMPORTED_S < starting[1]
    assert DagsterRunStatus.QUEUED not in LIMITS_S

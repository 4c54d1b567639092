"""Histories of the whole protocol under faults: none breaks a promise, and together they have been everywhere."""

from __future__ import annotations

import sys

import pytest

from tests.simulation.campaign import Totals, run_for, run_until_visited, running, shorten

VISITS, AT_MOST_S = 5, 25.0
"""In the gate, which looks whether the histories still go everywhere."""

LONG_S, LONG_VISITS = 170.0, 100


def check(totals: Totals, visits: int) -> None:
    print(totals)
    again = "".join(f"\npython -m tests.simulation {arguments}" for arguments in totals.violations)
    assert not totals.violations, f"{totals.violations}{again}"
    assert not totals.seldom(visits)


@pytest.mark.timeout(900)
def test_no_history_breaks_a_promise(simulation_s: float | None) -> None:
    wanted = (VISITS, AT_MOST_S) if simulation_s is None else (sys.maxsize, simulation_s)
    check(run_until_visited(*wanted), 1)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_no_history_of_a_long_series_breaks_a_promise() -> None:
    check(run_for(LONG_S, visits=LONG_VISITS), LONG_VISITS)


def test_a_seed_is_the_same_history_every_time() -> None:
    with running() as run:
        first, second = run(17, None), run(17, None)
    assert first.trace == second.trace
    assert first.visits == second.visits


def test_a_history_is_shortened_to_what_breaks_the_promise() -> None:
    rule = "positions are compared after the fence"
    with running(off=rule) as run:
        seed = next(seed for seed in range(100) if run(seed, None).violation)
    actions, result = shorten(seed, off=rule)
    assert result.violation is not None
    assert len(actions) <= 8
    assert any("PUBLISHED" in line for line in result.trace)

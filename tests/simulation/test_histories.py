"""Histories of the whole protocol under faults: none breaks a promise, and together they have been everywhere."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import run_for, running, shorten

SECONDS = 170.0
VISITS = 100


@pytest.mark.timeout(900)
def test_no_history_breaks_a_promise() -> None:
    totals = run_for(SECONDS, visits=VISITS)
    print(totals)
    again = "".join(f"\npython -m tests.simulation {arguments}" for arguments in totals.violations)
    assert not totals.violations, f"{totals.violations}{again}"
    assert not totals.seldom(VISITS)


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

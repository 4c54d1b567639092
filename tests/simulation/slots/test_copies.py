"""Histories of slots with every rule on: none breaks a promise."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import run_seeds
from tests.simulation.slots.history import MIXTURES, PLACES

SEEDS = 150


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mixture", MIXTURES)
def test_no_history_breaks_a_promise(mixture: str) -> None:
    totals = run_seeds(range(SEEDS), mixture=mixture)
    assert not totals.violations
    kind, _ = MIXTURES[mixture]
    assert [place for place in PLACES[kind].all if not totals.visits[place]] == []

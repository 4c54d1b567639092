"""Histories of Hudi tables: with every rule on none breaks a promise, and each rule that is off is found."""

from __future__ import annotations

import pytest

from tests.failpoints import HUDI
from tests.simulation.hudi.history import MIXTURES, History, violations
from tests.simulation.hudi.rules import HUDI_CASES

SEEDS, TRIED = 150, 600
OF_MAINTENANCE = {"hudi.after-plan", "hudi.after-clean"}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_no_history_breaks_a_promise(mixture: str) -> None:
    assert list(violations(range(SEEDS), mixture)) == []


def test_histories_come_by_every_failpoint_of_a_commit() -> None:
    reached = set[str]().union(*(History(seed, "commits").run().visits for seed in range(5)))
    assert reached >= HUDI - OF_MAINTENANCE


@pytest.mark.parametrize("name", HUDI_CASES)
def test_a_rule_that_is_off_is_found(name: str) -> None:
    rule = HUDI_CASES[name]
    found = violations(range(TRIED), rule.mixture, rule.rules, rule.faults)
    assert any(violation.promise is rule.breaks for _, violation in found)

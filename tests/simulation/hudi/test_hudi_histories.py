"""Histories of Hudi tables: with every rule on none breaks a promise, and each rule that is off is found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from calve.sink_core.rules import ALL
from tests.failpoints import HUDI
from tests.simulation.hudi.history import MIXTURES, History, violations
from tests.simulation.hudi.timeline import Fault
from tests.simulation.promises import Promise

SEEDS, TRIED = 150, 600
OF_MAINTENANCE = {"hudi.after-plan", "hudi.after-clean"}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_no_history_breaks_a_promise(mixture: str) -> None:
    assert list(violations(range(SEEDS), mixture)) == []


def test_histories_come_by_every_failpoint_of_a_commit() -> None:
    reached = set[str]().union(*(History(seed, "commits").run().visits for seed in range(5)))
    assert reached >= HUDI - OF_MAINTENANCE


@pytest.mark.parametrize(
    ("off", "faults", "mixture", "breaks"),
    [
        (["completion_compares_the_head"], [], "lost locks", Promise.COMMITTED_ONCE),
        (["staged_files_wait_for_the_report"], [], "strangers", Promise.PROGRESS),
        ([], [Fault.LOCK_OF_PYTHON], "commits", Promise.COMMITTED_ONCE),
        ([], [Fault.ONE_CHAIN], "strangers", Promise.PROGRESS),
        ([], [Fault.CLOCK_ALONE], "strangers", Promise.PROGRESS),
    ],
)
def test_a_rule_that_is_off_is_found(
    off: Collection[str], faults: Collection[Fault], mixture: str, breaks: Promise
) -> None:
    rules = replace(ALL, **dict.fromkeys(off, False))
    found = violations(range(TRIED), mixture, rules, faults)
    assert any(violation.promise is breaks for _, violation in found)

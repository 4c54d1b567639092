"""Each rule that is switched off, and each bug that others have had, is found by the promise that it breaks."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from calve.sink_core.rules import Rules
from tests.simulation.campaign import running
from tests.simulation.hudi.rules import HUDI_CASES
from tests.simulation.rules import CASES

ROOT = Path(__file__).parents[2]
HISTORIES = 2_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_it_breaks_its_promise(name: str) -> None:
    """A history that breaks another promise does not count, and one in which a process crashes ends the test."""
    rule = CASES[name]
    with running(mixture=rule.mixture, off=name) as run:
        assert any(run(seed, None).promise is rule.breaks for seed in (rule.seed, *range(HISTORIES)))


def test_every_switch_is_turned_off() -> None:
    cases = (*CASES.values(), *HUDI_CASES.values())
    assert {switch for rule in cases for switch in rule.off} == {field.name for field in fields(Rules)}


def test_only_the_simulation_turns_one_off() -> None:
    sources = [
        path for package in ("sink_core", "spark_jobs", "orchestration") for path in ROOT.glob(f"{package}/**/*.py")
    ]
    given = [str(path.relative_to(ROOT)) for path in sources if "Rules(" in path.read_text()]
    assert given == ["sink_core/rules.py"]


def test_the_document_has_each_with_its_promise() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    cases = {name: rule.breaks for name, rule in [*CASES.items(), *HUDI_CASES.items()]}
    assert [name for name, breaks in cases.items() if f"\n| {name} | {breaks.value} |\n" not in text] == []

"""Each rule that is switched off, and each bug that others have had, is found by the histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.campaign import running
from tests.simulation.rules import BUGS, RULES

RELIABILITY = Path(__file__).parents[2] / "docs" / "reliability.md"
HISTORIES = 2_000
CASES = {**RULES, **BUGS}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_it_is_found(name: str) -> None:
    with running(mixture=CASES[name].mixture, off=name) as run:
        found = (run(seed, None).violation for seed in range(HISTORIES))
        assert any(violation is not None for violation in found)


def test_the_document_names_each() -> None:
    text = RELIABILITY.read_text()
    assert [name for name in CASES if f"\n- {name}\n" not in text] == []

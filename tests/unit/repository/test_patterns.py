"""No regular expression of the package takes longer for a text than in proportion to its length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Some ten seconds, or as many minutes where others work. One that is quadratic takes hours.
LONGEST_S = 500


@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.faults)])
def test_every_pattern_is_linear_over_hostile_text(size: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.patterns", str(size)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        said, _ = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        pytest.fail(f"not linear: {said.splitlines()[-1]}")
    assert process.returncode == 0
    assert "calve.sink_core.config.references._PASSWORD search" in said

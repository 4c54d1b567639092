"""Whatever is in a value, it ends as a row or as a bad one, and the process goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.faults.processes import ROOT
from tests.hostile import WAYS

OTHERS = {way: 0.05 for way in WAYS if way not in ("json", "transform")}
SHARES = {"json": 0.5, "transform": 0.1, **OTHERS}
# A minute of them in all on a machine of usual speed.
LONGEST_S = {30_000: 550, 200_000: 3 * 3600}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", [30_000, pytest.param(200_000, marks=pytest.mark.faults)])
@pytest.mark.parametrize("way", WAYS)
def test_no_value_ends_the_process_or_holds_it_up(way: str, number: int) -> None:
    of_it = str(round(number * SHARES[way]))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile", way, "1", of_it], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        said, _ = process.communicate(timeout=LONGEST_S[number])
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    last = said.splitlines()[-1] if said else "nothing"
    assert process.returncode == 0, f"python -m tests.hostile {last}"

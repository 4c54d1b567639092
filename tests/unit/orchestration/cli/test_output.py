"""What goes on is said where there is no terminal, too, once it takes long."""

from __future__ import annotations

import subprocess
import sys

SLOW = """
from time import sleep
from calve.orchestration.cli import output
output.FIRST_S, output.EVERY_S = 0.1, 0.2
with output.working("connecting") as status:
    status.update("write: 5 offsets in 1 task")
    sleep({seconds})
"""


def said(seconds: float) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SLOW.format(seconds=seconds)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_work_that_takes_long_is_told_line_by_line() -> None:
    lines = said(1.5).splitlines()
    assert len(lines) >= 2
    assert set(lines) <= {f"write: 5 offsets in 1 task ({n} s)" for n in range(3)}


def test_what_is_done_soon_says_nothing() -> None:
    assert said(0) == ""

"""What goes on is said where there is no terminal, too, once it takes long."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from calve.orchestration.cli import output
from calve.sink_core.errors import CalveError

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


@pytest.mark.parametrize("escape", ["\x1b[2J", "\x1b]0;owned\x07", "\r", "\x9b2J", "\u202e", "\u2028", "\0"])
def test_no_escape_out_of_a_record_reaches_the_terminal(escape: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"dropped a{escape}b\nc")
    output.say_table("t", ["field", "of"], [[f"a{escape}b", "x"], ["a\nb", "x"]])
    output.say_error(CalveError(f"a{escape}b", hint="do"), as_json=False)
    said = capsys.readouterr()
    shown = repr(escape)[1:-1]
    assert said.out == f"dropped a{shown}b\nc\nfield\tof\na{shown}b\tx\na\\nb\tx\n"
    assert said.err.startswith(f"a{shown}b [")


def test_a_document_escapes_what_can_not_be_seen_and_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"a\x9b": ["\x1b[2J\n", "\u202e", "\U000e0001", "é 字"]}
    output.say_json(given)
    said = capsys.readouterr().out
    assert json.loads(said) == given
    assert said.replace("\n", "").isprintable()
    assert "é 字" in said


def test_what_is_done_soon_says_nothing() -> None:
    assert said(0) == ""

"""`calve positions set` of a source, killed at each point: offsets topic and control log are moved, or neither is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT
from calve.sink_core.failpoints import VARIABLE
from tests.codes import says
from tests.gate import every_second
from tests.launch import calve, forked
from tests.source_flow import A, Made, all_sent, at, document, paused, shown


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Made:
    return all_sent(broker, tmp_path)


NOTHING_IS_THERE = (
    "generation.after-record",
    "generation.after-fence",
    "slot.before-init",
    "slot.after-init",
    "slot.after-check",
    "transaction.after-begin",
    "source.after-offsets",
    "transaction.after-event",
    "transaction.after-offsets",
)


@pytest.mark.parametrize("point", every_second([*NOTHING_IS_THERE, "transaction.after-commit"]))
def test_a_set_that_is_killed_has_moved_offsets_and_log_or_neither(made: Made, point: str) -> None:
    paused(made)
    words = ("positions", "set", made.file, "--partition", A, "--offset", '{"line":3}', "--yes")
    assert forked(*words, cwd=None, **{VARIABLE: f"{point}=kill"}).returncode == -signal.SIGKILL
    again = calve(*words)
    assert again.returncode == EXIT_BAD_INPUT
    says(again.stderr, Code.POSITIONS_AT_WORK, "calve pause FILE --wait", "--give-up")
    there = at(5 if point in NOTHING_IS_THERE else 3)
    assert shown(made)["a.txt"] == there
    calve("pause", made.file, "--wait", "--timeout", 0, "--give-up")
    assert shown(made)["a.txt"] == there
    assert (document(*words)["set"] == []) == (point not in NOTHING_IS_THERE)
    assert shown(made)["a.txt"] == at(3)
    calve("resume", made.file)
    assert made.run().records == 2
    assert document("status", made.file)["findings"] == []

"""Processes that outlive their starter."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from calve.sink_core.detached import Detached, launch

WAITS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def test_a_server_does_not_hold_what_its_starter_has_open(tmp_path: Path) -> None:
    """Such as the lock under which `flock` started it."""
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        server = launch(WAITS, 0, tmp_path / "log")
    try:
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        server.end(30)


def test_a_server_is_found_until_it_ends(tmp_path: Path) -> None:
    server = launch(WAITS, 4711, tmp_path / "log")
    server.record(tmp_path / "state.json", more="for others")
    found = Detached.recorded(tmp_path / "state.json")
    assert found == server
    assert found.process() is not None
    server.end(30)
    assert found.process() is None
    assert Detached.recorded(tmp_path / "none.json") is None

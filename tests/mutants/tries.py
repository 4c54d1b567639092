"""Running tests in a copy of the work tree, in a process of their own that can be ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

LONGEST_S = 900.0
"""For each test or file that is asked for."""

_END_S = 60.0
_RECORDING = Path(__file__).with_name("recording.py")


class Ended(Exception):
    """No more tests are run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a test: the names of its classes, its own first, and the first line of its text."""

    test: str
    when: str
    kinds: tuple[str, ...]
    line: str

    def __str__(self) -> str:
        name = self.kinds[0].rpartition(".")[2]
        return f"{name}: {self.line}" if self.line else name


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of tests. `broke_off` says why pytest did not come to its end, if it did not."""

    passed: tuple[str, ...]
    failures: tuple[Failure, ...]
    broke_off: str = ""

    def without_pass(self, wanted: Iterable[str]) -> list[str]:
        """Those of `wanted`, node ids of pytest, of which no test has passed."""
        return [each for each in wanted if not any(is_of(test, each) for test in self.passed)]


def is_of(test: str, wanted: str) -> bool:
    """Whether a test is meant by a node id: that of its file, of itself, or of itself without parameters."""
    return test == wanted or test.startswith((f"{wanted}::", f"{wanted}["))


class Tries:
    """Runs tests; `end` ends those that are running, and all that are still asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, place: Path, tests: Sequence[str], *, compiled: bool) -> Ran:
        """Run `tests` in `place / "tree"` until one fails; all that they write lies in `place`.

        `compiled`: what Python compiles is kept for the next time. Raises Ended.
        """
        notes, output = place / "notes", place / "output"
        notes.write_text("")
        (place / "tmp").mkdir(exist_ok=True)
        options = ["-x", "-q", "-m", "", "-p", "no:cacheprovider", "--rootdir", ".", "--basetemp", str(place / "base")]
        command = [sys.executable, "-P", str(_RECORDING), str(notes), *options, *tests]
        with output.open("w") as written:
            process = self._start(command, place, written, compiled=compiled)
        broke_off, longest_s = "", LONGEST_S * len(tests)
        try:
            process.wait(longest_s)
        except subprocess.TimeoutExpired:
            _end(process)
            broke_off = f"no end after {longest_s:.0f} s"
        self._running.discard(process)
        if self._ended:
            raise Ended
        passed, failures = _read(notes)
        if not broke_off and not failures and process.returncode:
            said = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
            broke_off = f"pytest ended with {process.returncode}: {' '.join(said[-2:]) or 'it said nothing'}"
        return Ran(tuple(passed), tuple(failures), broke_off)

    def end(self) -> None:
        """Returns when nothing runs any more."""
        with self._lock:
            self._ended = True
            running = [*self._running]
        for process in running:
            _end(process)

    def _start(self, command: list[str], place: Path, output: TextIO, *, compiled: bool) -> subprocess.Popen[bytes]:
        # Without what is said to pytest, or to a test's process, from outside.
        kept = {n: value for n, value in os.environ.items() if not n.startswith(("PYTEST_", "CALVE_FAILPOINT"))}
        own = {"PYTHONPATH": str(place / "tree"), "TMPDIR": str(place / "tmp")}
        environment = kept | own | ({} if compiled else {"PYTHONDONTWRITEBYTECODE": "1"})
        with self._lock:
            if self._ended:
                raise Ended
            process = subprocess.Popen(
                command,
                cwd=place / "tree",
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us, who then end it.
                start_new_session=True,
            )
            self._running.add(process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that it ends what it has started; whatever is still there afterwards is killed."""
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(started, _END_S)


def _read(notes: Path) -> tuple[list[str], list[Failure]]:
    passed: list[str] = []
    failures: list[Failure] = []
    for note in map(json.loads, notes.read_text().splitlines()):
        if "errors" not in note:
            passed.append(note["test"])
        failures += [_failure(note, error) for error in note.get("errors", ())]
    return passed, failures


def _failure(note: Mapping[str, str], error: Mapping[str, list[str]]) -> Failure:
    return Failure(note["test"], note["when"], tuple(error["kinds"]), "".join(error["line"]))

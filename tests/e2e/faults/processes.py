"""Real `calve` processes for fault tests: started, watched line by line, killed and stopped by signals.

`cold` starts an interpreter. `warm` forks from a server that has imported everything and opened nothing
(`multiprocessing`'s fork server), which saves the seconds of import that hundreds of runs would cost; what runs after
the fork is the same command with the same arguments in a process of its own. The small batches of these worlds are
written by it and not on Spark: what the protocol rests on happens in the driver, and a thousand take minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import psutil

from calve.sink_core.failpoints import VARIABLE
from tests.e2e.faults import child
from tests.launch import FORK, begin

ROOT = Path(__file__).parents[3]
GONE_S = 60.0
"""How long what belonged to a killed run may take to notice."""

Exit = Callable[[float], int | None]
Start = Callable[[Sequence[str]], "Process"]
"""Starts `calve` with these arguments: a method of `Launcher`."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output and when it was read (monotonic seconds)."""

    at: float
    text: str

    @property
    def phase(self) -> str:
        """The phase that begins with this line, "" for other lines."""
        return self.text[len(child.MARK) :].partition(":")[0] if self.text.startswith(child.MARK) else ""


@dataclass
class Process:
    """A running `calve`. `lines` holds what has been read of its output so far."""

    pid: int
    output: Connection
    stderr_file: Path
    exited: Exit
    started: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list[Line])
    _rest: bytes = b""
    _family: set[psutil.Process] = field(default_factory=set[psutil.Process])

    def read(self, until: float) -> Iterator[Line]:
        """Lines as they come, until the process closes its output or `until` (monotonic seconds) is over."""
        while wait([self.output], max(0.0, until - time.monotonic())):
            data = os.read(self.output.fileno(), 65536)
            if not data:
                return
            *complete, self._rest = (self._rest + data).split(b"\n")
            for text in complete:
                line = Line(time.monotonic(), text.decode())
                self.lines.append(line)
                yield line

    def listen(self, seconds: float) -> None:
        """Read what comes meanwhile; ends early if the process does."""
        for _ in self.read(time.monotonic() + seconds):
            pass

    def finish(self, timeout: float = 180.0) -> int:
        """Read to the end and return the exit code; negative for a signal."""
        deadline = time.monotonic() + timeout
        for _ in self.read(deadline):
            pass
        code = self.exited(max(0.1, deadline - time.monotonic()))
        assert code is not None, f"still running after {timeout:.0f} s; its last line: {self.lines[-1:]}"
        return code

    def kill(self, *, group: bool) -> None:
        """SIGKILL, to the process alone or to its whole group; nothing if it has just ended."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            self._family = set(psutil.Process(self.pid).children(recursive=True))
            (os.killpg if group else os.kill)(self.pid, signal.SIGKILL)

    def await_stop(self, timeout: float = 120.0) -> bool:
        """Wait until the process has stopped itself (SIGSTOP); False if it ended instead."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.listen(0.05)
            status = psutil.Process(self.pid).status() if psutil.pid_exists(self.pid) else psutil.STATUS_DEAD
            if status == psutil.STATUS_STOPPED:
                return True
            if status in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE):
                return False
            time.sleep(0.02)
        raise AssertionError(f"neither stopped nor ended in {timeout:.0f} s")

    @contextmanager
    def asleep(self, timeout: float = 120.0) -> Generator[Process]:
        """Once the process has stopped itself; whatever becomes of the test, it is gone at the end."""
        try:
            assert self.await_stop(timeout), f"it ended instead: {self.output_text}\n{self.errors}"
            yield self
        finally:
            if self.exited(0) is None:
                self.kill(group=True)
                self.finish()

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def java(self) -> list[psutil.Process]:
        """The JVMs that it has started."""
        return [each for each in psutil.Process(self.pid).children(recursive=True) if each.name() == "java"]

    def leftovers(self) -> list[psutil.Process]:
        """What the process had started and is still alive a while after it was killed."""
        return psutil.wait_procs(self._family, timeout=GONE_S)[1]

    @property
    def output_text(self) -> str:
        """Everything on stdout so far but the progress."""
        return "\n".join(line.text for line in self.lines if not line.phase)

    @property
    def errors(self) -> str:
        """Everything on stderr so far."""
        return self.stderr_file.read_text()


@dataclass(frozen=True)
class Launcher:
    """Starts `calve`; stderr of each process goes to a file of its own in `directory`."""

    directory: Path

    def warm(self, args: Sequence[str], failpoint: str = "") -> Process:
        """Forked from the server."""
        reader, writer = FORK.Pipe(duplex=False)
        stderr_file = self._stderr_file()
        process = FORK.Process(target=_calve, args=(list(args), failpoint, writer, str(stderr_file)))
        process.start()
        writer.close()

        def exited(timeout: float) -> int | None:
            process.join(timeout)
            return process.exitcode

        assert process.pid is not None
        return Process(process.pid, reader, stderr_file, exited)

    def cold(self, args: Sequence[str], failpoint: str = "") -> Process:
        """From a new interpreter, in a process group of its own."""
        reader, writer = FORK.Pipe(duplex=False)
        stderr_file = self._stderr_file()
        with stderr_file.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", child.__name__, *args],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=writer.fileno(),
                stderr=stderr,
                env={**os.environ, VARIABLE: failpoint, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        writer.close()

        def exited(timeout: float) -> int | None:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None

        return Process(process.pid, reader, stderr_file, exited)

    def _stderr_file(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory / f"stderr-{time.monotonic_ns()}"


def _calve(args: list[str], failpoint: str, output: Connection, stderr_file: str) -> None:
    """What the forked process does: a session and streams of its own, then `calve`."""
    begin(output.fileno(), os.open(stderr_file, os.O_WRONLY | os.O_CREAT, 0o600))
    output.close()
    if failpoint:
        os.environ[VARIABLE] = failpoint
    child.main(args)

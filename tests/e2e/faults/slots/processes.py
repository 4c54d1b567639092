"""Runs of a mirror or a source as processes: the driver in one, each of its slots in one of its own, as on a cluster.

A slot's process is no child of its driver's: it goes on when the driver is killed, as Spark's tasks do for a while.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE, CalveError, RetriableError
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import run_source
from calve.sink_core.tasks import InProcessTasks, Job, T, Task
from tests.launch import FORK, begin

FORKED = multiprocessing.get_context("fork")
RUN_S = 240.0
TRIES = 4
GENERATIONS = 4
"""Of one run, at most: what it finds, and what comes meanwhile."""

_POLL_S = 0.02
_IDLE_S = 0.1


@dataclass(frozen=True)
class Strike:
    """What happens at a failpoint: `action` is one of kill, stop, with `@N` at its N-th visit. In the driver's process,
    unless it is one of a slot's: then in that of slot number `slot`, at its first try.
    """

    failpoint: str = ""
    action: str = "kill"
    slot: int = 0

    @property
    def of_slot(self) -> bool:
        return self.failpoint.startswith(("slot.", "transaction.", "source.after-"))

    def begin(self) -> None:
        if self.failpoint:
            os.environ[VARIABLE] = f"{self.failpoint}={self.action}"


NONE = Strike()


@dataclass(frozen=True)
class SlotProcesses(InProcessTasks):
    """Each task in a process of its own, which leaves a note of its pid; one that died is tried again, as Spark does,
    up to `tries` in all. `waiting` are processes that have no task yet.
    """

    strike: Strike = field(kw_only=True)
    tries: int = field(kw_only=True)
    waiting: list[Connection] = field(kw_only=True)

    @classmethod
    def forked(cls, tasks: int, notes: Path, strike: Strike, tries: int) -> SlotProcesses:
        """To be called before anything is opened that a fork would break: a client's threads do not come along."""
        waiting = [_forked(notes) for _ in range(tasks * tries * GENERATIONS)]
        return cls(tasks, strike=strike, tries=tries, waiting=waiting)

    def run(self, task: Task[T], n: int, *, records: int, job: Job | None = None) -> list[T]:  # noqa: ARG002 - as all
        begun = [self._begin(task, number, 0) for number in range(n)]
        results = [self._result(task, number, at) for number, at in enumerate(begun)]
        failed = next((failed for failed, _ in results if failed), None)
        if failed is not None:
            raise failed
        return [result for _, result in results]

    def _begin(self, task: Task[Any], number: int, attempt: int) -> Connection:
        struck = self.strike.of_slot and self.strike.slot == number and not attempt
        at = self.waiting.pop()
        at.send((task, number, self.strike if struck else NONE))
        return at

    def _result(self, task: Task[Any], number: int, at: Connection) -> tuple[Any, Any]:
        for attempt in range(1, self.tries + 1):
            with suppress(EOFError, ConnectionResetError):
                return at.recv()
            if attempt < self.tries:
                at = self._begin(task, number, attempt)
        return RetriableError(f"the process of slot {number} is gone"), None


def _forked(notes: Path) -> Connection:
    """A process that waits for a task; where to send it."""
    ours, its = FORKED.Pipe()
    FORKED.Process(target=_slot, args=(its, os.getpid(), notes)).start()
    its.close()
    return ours


def _slot(at: Connection, driver: int, notes: Path) -> None:
    # Others have been forked with the driver's end too, so that its death can't be heard.
    while not at.poll(_IDLE_S):
        if os.getppid() != driver:
            return
    task, number, strike = at.recv()
    (notes / f"slot-{number}-{os.getpid()}").touch()
    strike.begin()
    try:
        sent = None, task(number)
    except CalveError as error:
        sent = error, None
    # Whoever started it may be gone.
    with suppress(BrokenPipeError, ConnectionResetError):
        at.send(sent)


def _drive(file: Path, notes: Path, slots: int, strike: Strike, tries: int) -> None:
    said = os.open(notes / "said", os.O_WRONLY | os.O_CREAT, 0o600)
    begin(said, said)
    tasks = SlotProcesses.forked(slots, notes, strike, tries)
    pipeline = load(file)
    if not strike.of_slot or isinstance(pipeline, SourcePipeline):
        # One part of a source is read by the driver itself.
        strike.begin()
    try:
        print(_moved(pipeline, tasks))  # noqa: T201 - for who reads a failed test
    except CalveError as error:
        print(repr(error))  # noqa: T201
        code = error.exit_code
    else:
        code = EXIT_DONE
    # Those that wait see it by its end, which multiprocessing would hold back for theirs.
    sys.stdout.flush()
    os._exit(code)


def _moved(pipeline: object, tasks: SlotProcesses) -> str:
    """What a run says at its end."""
    if isinstance(pipeline, SourcePipeline):
        with SourcePlane(pipeline, tasks=tasks) as plane:
            sent = run_source(plane)
            return f"{sent.ended}; {sent.records} records"
    assert isinstance(pipeline, MirrorPipeline)
    with MirrorPlane(pipeline, tasks=tasks) as plane:
        copied = run_mirror(plane)
        return f"{copied.ended}; {copied.records} records"


@dataclass(frozen=True)
class Run:
    """A run in progress: its driver's process, and a folder with notes of its slots'."""

    driver: BaseProcess
    notes: Path
    begun: float

    @classmethod
    def start(cls, file: Path, notes: Path, slots: int, strike: Strike = NONE, tries: int = 1) -> Run:
        notes.mkdir(parents=True)
        process = FORK.Process(target=_drive, args=(file, notes, slots, strike, tries))
        process.start()
        return cls(process, notes, time.monotonic())

    @property
    def slots(self) -> list[int]:
        """Pids of its slots' processes, those that are gone among them."""
        return [int(path.name.rpartition("-")[2]) for path in sorted(self.notes.glob("slot-*"))]

    @property
    def said(self) -> str:
        return (self.notes / "said").read_text() if (self.notes / "said").exists() else ""

    def pids(self) -> list[int]:
        return [self.driver.pid or 0, *self.slots]

    def finish(self) -> int:
        """The driver's exit code, once it and all slots are gone."""
        self.driver.join(RUN_S)
        code = self.driver.exitcode
        assert code is not None, f"still running: {self.said}"
        self._until(lambda: not any(map(alive, self.slots)), "slots go on")
        return code

    def kill(self, *pids: int) -> None:
        for pid in pids:
            if alive(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def await_note(self, seconds: float) -> None:
        """Until some slot is at work, or the driver's end."""
        deadline = time.monotonic() + seconds
        while not self.slots and self.driver.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def await_stop(self) -> int:
        """The pid of a process that has stopped itself; 0 if the run ended instead."""
        found: list[int] = []

        def asleep() -> bool:
            found.extend(pid for pid in self.pids() if status(pid) == psutil.STATUS_STOPPED)
            return bool(found) or not self.driver.is_alive()

        self._until(asleep, "neither asleep nor at its end")
        return found[0] if found else 0

    def end(self) -> None:
        """Whatever is left of it, asleep or not."""
        self.kill(*self.pids())

    def _until(self, there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + RUN_S
        while not there():
            assert time.monotonic() < deadline, f"{what}: {self.said}"
            time.sleep(_POLL_S)


def run_to_end(start: Callable[[], Run], tries: int = TRIES) -> float:
    """Seconds until a run that nobody disturbs has ended well; a cluster that just started may refuse the first."""
    begun = time.monotonic()
    for left in reversed(range(tries)):
        run = start()
        code = run.finish()
        if code == EXIT_DONE:
            break
        assert left, run.said
        assert code == EXIT_UNREACHABLE, run.said
    return time.monotonic() - begun


def status(pid: int) -> str:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def alive(pid: int) -> bool:
    return status(pid) not in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE)

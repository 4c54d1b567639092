"""One thread, many processes: the real code of each runs in a greenlet and gives way at every effect.

Which of them goes on next is the caller's choice. Nothing here draws lots, so that a history is repeated by repeating
the choices. Time is virtual: a process that sleeps moves the clock when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

STEP_S = 0.001


class Killed(BaseException):
    """A killed process unwinds with this; nothing it still does has an effect."""


class Process:
    """Code under the scheduler.

    `error` is what it ended with, None if it came to its end or was killed; `waiting`, if it has to wait for others;
    `at` the failpoint that it reached last.
    """

    def __init__(self, name: str, main: Callable[[], None]) -> None:
        self.name = name
        self.killed = False
        self.ended = False
        self.waiting = False
        self.at = ""
        self.error: Exception | None = None
        self._main = main
        # A process may begin another, which must not end with it.
        self.greenlet = greenlet(self._run, _root())

    def _run(self) -> None:
        try:
            self._main()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - the world judges every one of them
            self.error = error
        finally:
            self.ended = True


def _root() -> greenlet:
    """Where the scheduler runs."""
    found = getcurrent()
    while found.parent is not None:
        found = found.parent
    return found


class Scheduler:
    """Runs processes step by step. A step goes from one effect to the next."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        self.current: Process | None = None
        self.steps = 0

    def step(self, process: Process, steps: int) -> None:
        """Let `process` go on for `steps` effects, or until it has to wait for others, or to its end."""
        process.waiting = False
        for _ in range(steps):
            if process.ended or process.waiting:
                return
            self.now_s += STEP_S
            self.steps += 1
            self.current = process
            try:
                process.greenlet.switch()
            finally:
                self.current = None

    def give_way(self) -> None:
        """Called by a process before an effect: others may go first."""
        process = self.current
        if process is None:
            return
        assert process.greenlet is getcurrent()
        if process.killed:
            raise Killed
        parent = process.greenlet.parent
        assert parent is not None
        parent.switch()
        if process.killed:
            raise Killed

    def sleep(self, seconds: float) -> None:
        """`time.sleep` of the simulated world."""
        if self.current is not None:
            self.current.waiting = True
        self.give_way()
        self.now_s += seconds

    def kill(self, process: Process) -> None:
        """End `process` where it is, as SIGKILL would."""
        if process.ended:
            return
        process.killed = True
        if not process.greenlet:
            process.ended = True
            return
        self.current = process
        try:
            process.greenlet.switch()
        finally:
            self.current = None
        assert process.ended

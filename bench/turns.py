"""Processes that take turns on one core, so that a machine with few cores shows what more of them would give."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from threading import Event, Thread

import psutil

TURN_S = 0.02
"""Short beside a task, long beside the thread's own delays."""

_LOOK_EVERY_S = 1.0


@contextmanager
def half_the_time(pids: Sequence[int]) -> Generator[None]:
    """One process or two, each with all that it starts, run half of the time: while one does, the other is stopped."""
    assert len(pids) <= 2, f"{len(pids)} processes can't run half of the time on one core"
    ended = Event()
    thread = Thread(target=_take_turns, args=(pids, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for pid in pids:
            _send(signal.SIGCONT, _family(pid))


def _take_turns(pids: Sequence[int], ended: Event) -> None:
    families, looked = [list[psutil.Process]()] * 2, 0.0
    for running in cycle((0, 1)):
        if time.monotonic() - looked > _LOOK_EVERY_S:
            families, looked = [_family(pid) for pid in pids] + [[]] * (2 - len(pids)), time.monotonic()
        _send(signal.SIGSTOP, families[1 - running])
        _send(signal.SIGCONT, families[running])
        if ended.wait(TURN_S):
            return


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _send(number: signal.Signals, processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)

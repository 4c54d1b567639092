"""Time limits, calls that may not come back, waits between two tries, and who hears of what takes long.

The clock, the sleep and the jitter are looked up on their modules with each call: there the simulation replaces them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

_NOBODY: Callable[[str], None] = lambda _step: None  # noqa: E731 - a default, not a function of this module
LONG_STEP: ContextVar[Callable[[str], None]] = ContextVar("LONG_STEP", default=_NOBODY)
"""Who hears what a step is at that takes long unexpectedly, whichever command is in it: a terminal, or a run's log."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment until which something may take, on this process's clock."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The one in so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; negative once it has passed."""
        return self.at_s - time.monotonic()

    @property
    def passed(self) -> bool:
        return self.left_s <= 0


def back_off(tries: int, *, first_s: float = 0.05, most_s: float = 2.0) -> None:
    """Wait before another try, `tries` having failed before the last one: for up to `first_s`, twice as long each time,
    and `most_s` at most. The wait is drawn, so that those who got into each other's way don't meet again.
    """
    time.sleep(random.uniform(0, min(most_s, first_s * 2**tries)))  # noqa: S311 - jitter, not a secret


def apart(call: Callable[[], T], name: str) -> Future[T]:
    """What becomes of a call in a thread of its own.

    One that never comes back keeps that thread, and nobody waits for it at the end of the process: those of a
    ThreadPoolExecutor are joined there.
    """
    answer: Future[T] = Future()

    def make(future: Future[T]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks
            future.set_exception(error)
        finally:
            # The error's traceback leads here, and the future to the error.
            del future

    Thread(target=make, args=(answer,), daemon=True, name=name).start()
    return answer

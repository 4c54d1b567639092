"""The daemon of `calve.spark_jobs.daemon` for Spark Connect, which ends by itself once nobody has used it for a while.

A Connect server has a daemon for each session, and ends none of them before itself: a run a minute would leave
fourteen hundred of them a day, of 120 MiB each that nothing else shares. Spark starts another if one is missing that it
needs after all.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Any

from calve.sink_core.timing import Deadline
from calve.spark_jobs.compat import put_in_place_of_select
from calve.spark_jobs.daemon import get_ready, manager

UNUSED_S = 60.0
"""Spark ends workers, whose daemon this is, that had nothing to do for a minute; then this one begins."""


class Looks:
    """Stands in for `select` in the daemon's loop, which asks once a second; raises SystemExit once it is unused.

    It is not while it has workers, or whoever wants one is waiting.
    """

    error = select.error

    def __init__(self) -> None:
        self._until = Deadline.after(UNUSED_S)

    def select(self, *asked: Any) -> tuple[Sequence[Any], ...]:
        ready = select.select(*asked)
        if any(ready) or _has_workers():
            self._until = Deadline.after(UNUSED_S)
        elif self._until.passed:
            raise SystemExit
        return ready


def _has_workers() -> bool:
    """The daemon ignores SIGCHLD: a worker that ended is a child no longer."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def main() -> None:
    """Be the daemon until it is unused, or Spark ends it."""
    put_in_place_of_select(Looks())
    get_ready()
    manager()


if __name__ == "__main__":
    main()

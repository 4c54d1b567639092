"""Python's search for objects that hold each other."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

_COLLECT_AFTER = 500_000
"""New objects that are there at the end of all that come and go."""


@contextmanager
def infrequent_gc() -> Generator[None]:
    """Let Python look for cycles rarely, where there are many objects and none of them is in one.

    Collections took a sixth of a task's time, and a twentieth of a proof's.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)

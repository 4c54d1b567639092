"""A lock between processes of one machine, held on a file and dropped by the kernel when its holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold the lock file `path` (made if missing, never removed), waiting for whoever has it. Not re-entrant."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

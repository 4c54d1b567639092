"""What runs again and again during a soak: `calve run` without a pause, and each task of maintenance in turn."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from calve.sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE
from tests import support
from tests.e2e.faults.processes import Process

RUN = "run"
TASKS = ("compact", "manifests", "expire", "orphans", "trim")
KILLED = -9
RUN_S = 1200.0
OLD_S = 10 * 86_400.0
SETTLED_S = 300.0
"""Files older than this are of no process that still works on them; for orphan removal they are made days old."""


@dataclass
class Worker(threading.Thread):
    """Starts one process after the other until it is told to end; `pause_s` lies between two.

    `next_start` gives what it is called and the started process; one that was killed has its turn again. `failures` are
    ends that should not be: neither done nor out of reach, nor killed.
    """

    next_start: Callable[[int], tuple[str, Process]]
    after: Callable[[], None] = lambda: None
    pause_s: float = 0.0
    ends: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    done_at: dict[str, float] = field(default_factory=dict[str, float])
    at_work: tuple[str, Process] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    # A dataclass that compares by value has no hash, which threads are looked up by.
    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        number = 0
        while not self._ended.wait(self.pause_s):
            name, process = self.next_start(number)
            self.at_work = (name, process)
            code = process.finish(RUN_S)
            self.at_work = None
            number += code != KILLED
            self._note(name, code, process)
            self.after()

    def stop(self) -> None:
        """Returns when the last process has ended."""
        self._ended.set()
        self.join()

    def kill(self, *, group: bool) -> str | None:
        """SIGKILL whatever runs; what that was."""
        found = self.at_work
        if found is None:
            return None
        name, process = found
        process.kill(group=group)
        return name

    def _note(self, name: str, code: int, process: Process) -> None:
        self.ends[f"{name} {code}"] += 1
        if code == EXIT_DONE:
            self.done_at[name] = time.time()
        elif code not in (EXIT_UNREACHABLE, KILLED):
            self.failures.append(f"{name} ended with {code}: {process.output_text[-500:]}{process.errors[-1500:]}")


def age_files(warehouse: Path) -> None:
    """Let days pass for what nobody works on any more, and leave a file among it that is nobody's."""
    now = time.time()
    for path in warehouse.rglob("*"):
        try:
            if path.is_file() and now - path.stat().st_mtime > SETTLED_S:
                os.utime(path, (now - OLD_S, now - OLD_S))
        except FileNotFoundError:
            continue  # expired meanwhile
    data = next(iter(warehouse.rglob("data")), None)
    if data is not None:
        orphan = data / f"{support.unique('orphan')}.parquet"
        orphan.write_bytes(b"nothing")
        os.utime(orphan, (now - OLD_S, now - OLD_S))

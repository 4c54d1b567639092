"""Looks at a soak while it runs: memory and handles of what lives long, and when a fault has healed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import SQLAlchemyError

from calve.sink_core.tables.history.record import COMMIT_ID
from tests import support
from tests.soak.report import Healed, Trend, trend
from tests.soak.work import RUN

SAMPLE_EVERY_S = 5.0
LOOK_EVERY_S = 0.5
MEMORY, HANDLES = "memory, MB", "open handles"


@dataclass
class Samples(threading.Thread):
    """Of each process: resident memory and open handles."""

    processes: Mapping[str, psutil.Process]
    found: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=dict[tuple[str, str], list[tuple[float, float]]]
    )
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(SAMPLE_EVERY_S):
            for name, process in self.processes.items():
                with suppress(psutil.NoSuchProcess):
                    at = time.monotonic() - began
                    self.found.setdefault((name, MEMORY), []).append((at, process.memory_info().rss / 2**20))
                    self.found.setdefault((name, HANDLES), []).append((at, float(process.num_fds())))

    def stop(self) -> list[Trend]:
        self._ended.set()
        self.join()
        return [trend(process, figure, samples) for (process, figure), samples in self.found.items()]


@dataclass(frozen=True, slots=True)
class _Fault:
    name: str
    hit: str
    at: float


@dataclass
class Healing(threading.Thread):
    """How long after each fault what it hit worked again.

    A fault on ingestion is over with the first snapshot of the pipeline's after it, one on a task of maintenance with
    the first time after it that the task ends well, which `done_at` knows. `lake` is the folder of the catalog.
    """

    lake: Path
    table: str
    done_at: Callable[[str], float]
    healed: list[Healed] = field(default_factory=list[Healed])
    _open: list[_Fault] = field(default_factory=list[_Fault])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def note(self, fault: str, hit: str) -> None:
        """It happened now; `hit` is a task of maintenance, or `RUN` for ingestion."""
        with self._lock:
            self._open.append(_Fault(fault, hit, time.time()))

    def run(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._look()

    def stop(self, timeout_s: float) -> list[Healed]:
        """Once all is healed, or after `timeout_s`; what is not healed then is among them."""
        deadline = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        self._ended.set()
        self.join()
        return [*self.healed, *(Healed(fault.name, None) for fault in self._open)]

    def _look(self) -> None:
        with self._lock:
            committed = self._committed() if any(fault.hit == RUN for fault in self._open) else 0.0
            left: list[_Fault] = []
            for fault in self._open:
                worked = committed if fault.hit == RUN else self.done_at(fault.hit)
                if worked > fault.at:
                    self.healed.append(Healed(fault.name, worked - fault.at))
                else:
                    left.append(fault)
            self._open = left

    def _committed(self) -> float:
        """When the pipeline's last snapshot was made, in seconds since the epoch."""
        try:
            with closing(support.open_catalog(self.lake)) as catalog:
                snapshots = catalog.load_table(self.table).metadata.snapshots
        except (NoSuchTableError, OSError, SQLAlchemyError):
            return 0.0  # the catalog is locked or its file just replaced; the next look sees it
        own = [s.timestamp_ms for s in snapshots if s.summary and COMMIT_ID in s.summary.additional_properties]
        return max(own, default=0) / 1000

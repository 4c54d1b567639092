"""A peer in a JVM of its own: how it is started as its own scripts do, and what it takes for so many records."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.measure import Measured
from calve.orchestration.local.broker_files import write_logging
from calve.sink_core.detached import tail
from calve.sink_core.java import find_java

HEAP_MB = 2_048
JAVA_OPTIONS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""What Kafka's own scripts start it with."""
LOOK_EVERY_S = 0.2
GIVE_UP_S = 900.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class JavaPeer:
    """`main` is its class, started with `file`; `directory` is for its files. `died` is what its log says when it has,
    though its process goes on.
    """

    name: str
    main: str
    file: Path
    jars: Sequence[Path]
    directory: Path
    died: str | None = None

    def measured(
        self, records: int, done: Callable[[], int], *, begin: Callable[[], bool] | None = None
    ) -> Sequence[Measured]:
        """From the half of the records to the last, and from its start to the last. `done` says how many there are,
        `begin` has it begin once it listens.

        Raises SystemExit if it ends, or doesn't come to an end.
        """
        start_s = time.monotonic()
        with self._log.open("wb") as output:
            process = psutil.Popen(self._command(), cwd=self.directory, stdout=output, stderr=output)
        try:
            if begin is not None:
                self._until(process, 1, lambda: int(begin()))
            began = self._until(process, records // 2, done)
            cpu_s, wall_s = _cpu_s(process), time.monotonic()
            self._until(process, records, done)
            used_s, now_s = _cpu_s(process), time.monotonic()
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
        return Measured(records - began, used_s - cpu_s, now_s - wall_s), Measured(records, used_s, now_s - start_s)

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _command(self) -> list[str]:
        return [
            str(find_java()),
            f"-Xmx{HEAP_MB}m",
            *JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={write_logging(self.directory)}",
            "-cp",
            os.pathsep.join(map(str, self.jars)),
            self.main,
            str(self.file),
        ]

    def _until(self, process: psutil.Popen, records: int, done: Callable[[], int]) -> int:
        """Wait until so many are there; how many there are."""
        deadline = time.monotonic() + GIVE_UP_S
        while (found := done()) < records:
            ended = self.died is not None and self.died in self._log.read_text(errors="replace")
            if process.poll() is not None or ended or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} had {found:,} of {records:,} records: {tail(self._log)}")
            time.sleep(LOOK_EVERY_S)
        return found


def _cpu_s(process: psutil.Popen) -> float:
    times = process.cpu_times()
    return times.user + times.system

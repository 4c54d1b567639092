"""CPU-seconds (user + system) and wall time of a command with everything it starts.

`python -m bench.measure COMMAND …` prints `{"cpu_s": …, "wall_s": …}` as its last line. The measuring process becomes
the reaper of all descendants of the command (Linux, `prctl(PR_SET_CHILD_SUBREAPER)`), so that also processes whose
parent is gone, such as Spark's JVM and Python workers, end here; `wait4` gives for each its own time and that of all
it has reaped. Nothing is sampled and nothing is left out. The broker was started elsewhere and is not counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a scenario took. `cpu_s` of all processes but the broker."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def records_per_cpu_s(self) -> float:
        return self.records / self.cpu_s


class Meter:
    """Of this process and its living descendants, what they reaped included: between two looks from inside."""

    def __init__(self) -> None:
        self._cpu, self._wall = self._tree(), time.monotonic()

    def read(self, records: int) -> Measured:
        return Measured(records, self._tree() - self._cpu, time.monotonic() - self._wall)

    @staticmethod
    def _tree() -> float:
        me = psutil.Process()
        times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def measured(command: Sequence[str], records: int) -> Measured:
    """Run `command` to its end under a measuring process. Raises SystemExit with its output if it fails."""
    done = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", "bench.measure", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return Measured(records, **json.loads(done.stdout.splitlines()[-1]))


def main(command: list[str]) -> int:
    """Run the command, reap all that it leaves, print the sums; its exit code."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    started, cpu_s, code = time.monotonic(), 0.0, 0
    child = os.posix_spawn(command[0], command, os.environ)
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu_s += usage.ru_utime + usage.ru_stime
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
    print(json.dumps({"cpu_s": round(cpu_s, 3), "wall_s": round(time.monotonic() - started, 3)}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

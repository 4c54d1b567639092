"""CPU-seconds (user + system) and wall time of a command with everything it starts.

`python -m bench.measure COMMAND …` prints `{"cpu_s": …, "wall_s": …}` as its last line. All descendants are looked at
20 times a second and each counts with what it had used when last seen. What a parent reports of its children can't be
relied on: Spark's Python daemon ignores SIGCHLD, and then the kernel keeps no account of the workers it started. Of a
process up to 50 ms may be missed. The broker was started elsewhere and is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a scenario took. `cpu_s` of all processes but the broker."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def records_per_cpu_s(self) -> float:
        """0 for so few that no time shows."""
        return self.records / self.cpu_s if self.cpu_s else 0.0


def inside(module: str, *arguments: str) -> Measured:
    """What a process measured of itself, which prints it as its last line."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


class Meter:
    """Of this process and its living descendants, what they reaped included, between two looks from inside.

    Spark's Python workers live on between the jobs of a session, so that none is missed. Processes of `without` don't
    count: servers that were started here. `of` is another process than this one to look at.
    """

    def __init__(self, without: Collection[int] = (), of: int | None = None) -> None:
        self._without, self._root = without, psutil.Process(of)
        self._cpu, self._wall = self._tree(), time.monotonic()

    def read(self, records: int) -> Measured:
        return Measured(records, self._tree() - self._cpu, time.monotonic() - self._wall)

    def _tree(self) -> float:
        family = (self._root, *self._root.children(recursive=True))
        counted = (process for process in family if process.pid not in self._without)
        times = [process.cpu_times() for process in counted]
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
    """Run the command and add up what its processes used; its exit code."""
    started = time.monotonic()
    used: dict[psutil.Process, float] = {}
    child = psutil.Popen(command)
    while child.poll() is None:
        _look(child, used)
        time.sleep(_LOOK_EVERY_S)
    print(json.dumps({"cpu_s": round(sum(used.values()), 3), "wall_s": round(time.monotonic() - started, 3)}))
    return child.returncode


def _look(root: psutil.Process, used: dict[psutil.Process, float]) -> None:
    """Note what each process of the tree has used by itself so far. A recycled pid is another process to psutil."""
    for process in [*used, root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            used[process] = times.user + times.system


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

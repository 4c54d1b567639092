"""Kills at seeded moments, and what became of the events: a series of rounds on a few pipelines."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.e2e.faults.processes import Launcher, Process
from tests.e2e.faults.world import Difference, World

PHASES = ("start", "plan", "write", "publish", "commit")
"""Phases a kill can fall into, as `spark_jobs.run.Progress` names them."""

AIMS = ("plan", "write", "publish", "commit", "start")
RUN_S = 180.0
UNKNOWN_S = 0.2


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill. `phase` is where it fell, `recovered_s` the wall time of the next run that was left alone."""

    phase: str
    cold: bool
    recovered_s: float
    difference: Difference


@dataclass
class Durations:
    """Mean seconds of each phase as seen so far, so that a moment can be drawn uniformly from it."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def learn(self, process: Process) -> None:
        steps = [line for line in process.lines if line.phase]
        for step, after in pairwise(steps):
            known = self.seconds.get(step.phase, after.at - step.at)
            self.seconds[step.phase] = 0.8 * known + 0.2 * (after.at - step.at)

    def draw(self, chance: random.Random, phase: str) -> float:
        return chance.uniform(0, self.seconds.get(phase, UNKNOWN_S))


@dataclass
class Series:
    """Seeded kills, up to `in_a_row` before a run is left alone; every `cold_every`-th has a Spark of its own."""

    seed: int
    launcher: Launcher
    new_world: Callable[[int], World]
    per_world: int = 10
    in_a_row: int = 3
    cold_every: int = 10
    durations: Durations = field(default_factory=Durations)

    def run(self, kills: int) -> Iterator[Kill]:
        """Kills one by one; every world is proven at its end."""
        chance = random.Random(self.seed)
        for first in range(0, kills, self.per_world):
            world = self.new_world(chance.randrange(2**31))
            left = list(range(first, min(first + self.per_world, kills)))
            while left:
                row, left = left[: (size := chance.randint(1, self.in_a_row))], left[size:]
                yield from self._round(
                    world, chance, [number % self.cold_every == self.cold_every - 1 for number in row]
                )
            prove(self.launcher, world)

    def _round(self, world: World, chance: random.Random, row: list[bool]) -> list[Kill]:
        """A kill for each of `row`, which says whether it is cold, then a run to the end."""
        phases = [self._killed_for_sure(world, chance, cold=cold) for cold in row]
        if chance.random() < 0.5:
            world.produce(chance.randint(1, 300))
        started = time.monotonic()
        run_to_end(self.launcher, world)
        took, difference = time.monotonic() - started, world.difference()
        return [Kill(phase, cold, took, difference) for phase, cold in zip(phases, row, strict=True)]

    def _killed_for_sure(self, world: World, chance: random.Random, *, cold: bool) -> str:
        while True:
            world.produce(chance.randint(150, 400))
            if phase := self._killed(world, chance, cold=cold):
                return phase

    def _killed(self, world: World, chance: random.Random, *, cold: bool) -> str:
        """Kill a run in a phase drawn at random; the phase it fell into, "" if the run was over first."""
        aim, visit, group = chance.choice(AIMS), chance.randint(1, 2), chance.random() < 0.5
        start, file = (self.launcher.cold, world.use_cold_spark()) if cold else (self.launcher.warm, world.file)
        process = start(["run", file])
        if _reached(process, aim, visit if aim != "start" else 1):
            deadline = time.monotonic() + self.durations.draw(chance, aim)
            for _ in process.read(deadline):
                pass
            process.kill(group=group)
        code = process.finish(RUN_S)
        assert code in (0, -9), f"exit code {code}\n{process.output_text}\n{process.errors}"
        assert not process.leftovers()
        self.durations.learn(process)
        phases = [line.phase for line in process.lines if line.phase in PHASES]
        return phases[-1] if code == -9 and phases else ""


def _reached(process: Process, phase: str, visit: int) -> bool:
    seen = Counter[str]()
    for line in process.read(time.monotonic() + RUN_S):
        seen[line.phase] += 1
        if seen[phase] == visit:
            return True
    return False


def run_to_end(launcher: Launcher, world: World) -> Process:
    """A run that nobody disturbs: exit code 0, nothing on stderr."""
    process = launcher.warm(["run", world.file])
    assert process.finish(RUN_S) == 0, f"{process.output_text}\n{process.errors}"
    assert process.errors == ""
    return process


def prove(launcher: Launcher, world: World) -> None:
    """`calve verify --deep` holds, and what the tables hold is what was produced."""
    process = launcher.warm(["verify", world.file, "--deep"])
    assert process.finish(RUN_S) == 0, f"{process.output_text}\n{process.errors}"
    assert world.difference().none, world.difference()


def table(kills: Iterable[Kill]) -> str:
    """Phase → kills, events lost, events twice, median and longest seconds of the run after."""
    lines = [f"{'phase':<10}{'kills':>7}{'cold':>6}{'lost':>6}{'twice':>7}{'recovered in s (median, max)':>32}"]
    by_phase: dict[str, list[Kill]] = {phase: [] for phase in (*PHASES, "all")}
    for kill in kills:
        by_phase[kill.phase].append(kill)
        by_phase["all"].append(kill)
    for phase, found in by_phase.items():
        lost = sum(k.difference.lost + k.difference.dead_letters_lost for k in found)
        twice = sum(k.difference.twice + k.difference.foreign + k.difference.dead_letters_twice for k in found)
        took = sorted(k.recovered_s for k in found) or [0.0]
        seconds = f"{took[len(took) // 2]:.1f}, {took[-1]:.1f}"
        cold = sum(k.cold for k in found)
        lines.append(f"{phase:<10}{len(found):>7}{cold:>6}{lost:>6}{twice:>7}{seconds:>32}")
    return "\n".join(lines)

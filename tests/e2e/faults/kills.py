"""Kills at seeded moments, and what became of the events: a series of rounds on a few pipelines."""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from calve.sink_core.errors import EXIT_DONE
from tests.e2e.faults.outcomes import Outcome
from tests.e2e.faults.processes import Launcher, Process, Start
from tests.e2e.faults.world import World

PHASES = ("start", "plan", "write", "publish", "commit")
"""Phases a kill can fall into, as `calve.sink_core.sink.run.Progress` names them."""

AIMS = ("plan", "write", "publish", "commit", "start")
RUN_S = 180.0
UNKNOWN_S = 0.2


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
    """Seeded kills of `calve run`, up to `in_a_row` before a run is left alone.

    Unless `swift` the batches run on Spark; then every `cold_every`-th run has a Spark and an interpreter of its own.
    """

    seed: int
    launcher: Launcher
    new_world: Callable[[int], World]
    swift: bool = False
    per_world: int = 10
    in_a_row: int = 3
    cold_every: int = 10
    events: tuple[int, int] = (150, 400)
    durations: Durations = field(default_factory=Durations)

    def run(self, kills: int) -> Iterator[Outcome]:
        """Kills one by one; every world is proven at its end."""
        chance = random.Random(self.seed)
        for first in range(0, kills, self.per_world):
            world = self.new_world(chance.randrange(2**31))
            left = list(range(first, min(first + self.per_world, kills)))
            while left:
                row, left = left[: (size := chance.randint(1, self.in_a_row))], left[size:]
                yield from self._round(world, chance, [self._is_cold(number) for number in row])
            prove(self._warm, world)

    @property
    def _warm(self) -> Start:
        return self.launcher.warm

    def _is_cold(self, number: int) -> bool:
        return not self.swift and number % self.cold_every == self.cold_every - 1

    def _round(self, world: World, chance: random.Random, row: Sequence[bool]) -> Iterator[Outcome]:
        """A kill for each of `row`, which says whether it is cold, then a run to the end."""
        phases = [self._killed_for_sure(world, chance, cold=cold) for cold in row]
        if chance.random() < 0.5:
            world.produce(chance.randint(1, self.events[1]))
        took, difference = run_to_end(self._warm, world), world.difference()
        for phase, cold in zip(phases, row, strict=True):
            where = "swift" if self.swift else "cold Spark" if cold else "warm Spark"
            yield Outcome.of(f"run, {where}: killed in", phase, difference, took)

    def _killed_for_sure(self, world: World, chance: random.Random, *, cold: bool) -> str:
        while True:
            world.produce(chance.randint(*self.events))
            if phase := self._killed(world, chance, cold=cold):
                return phase

    def _killed(self, world: World, chance: random.Random, *, cold: bool) -> str:
        """Kill a run in a phase drawn at random; the phase it fell into, "" if the run was over first."""
        aim, visit, group = chance.choice(AIMS), chance.randint(1, 2), chance.random() < 0.5
        start, file = (self.launcher.cold, world.use_cold_spark()) if cold else (self._warm, world.file)
        process = start(["run", file])
        if _reached(process, aim, visit if aim != "start" else 1):
            process.listen(self.durations.draw(chance, aim))
            process.kill(group=group)
        code = process.finish(RUN_S)
        assert code in (EXIT_DONE, -9), f"exit code {code}\n{process.output_text}\n{process.errors}"
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


def done(start: Start, args: Sequence[str]) -> Process:
    """A command that nobody disturbs and that must end well."""
    process = start(args)
    assert process.finish(RUN_S) == EXIT_DONE, f"{process.output_text}\n{process.errors}"
    return process


def run_to_end(start: Start, world: World) -> float:
    """A run that nobody disturbs: exit code 0, nothing on stderr. Returns its seconds."""
    started = time.monotonic()
    process = done(start, ["run", world.file])
    # What takes ten seconds says so there, on a busy machine Spark's start.
    errors = [line for line in process.errors.splitlines() if not re.fullmatch(r".* \(\d+ s\)", line)]
    assert errors == [], process.output_text
    return time.monotonic() - started


def prove(start: Start, world: World) -> None:
    """`calve verify --deep` holds, and what the tables hold is what was produced."""
    done(start, ["verify", world.file, "--deep"])
    assert world.difference().none, world.difference()


def waited_for(
    start: Callable[..., Process],
    run: Sequence[str],
    failpoint: str,
    *,
    woken: bool,
    meanwhile: Callable[[], object] = lambda: None,
) -> float:
    """The seconds in which two end: one asleep with a lock that is then woken, or killed, and one that waits for it."""
    with start(run, f"{failpoint}=stop@1").asleep(RUN_S) as sleeper:
        meanwhile()
        other = start(run)
        other.listen(5)
        assert not other.exited(0), other.output_text
        started = time.monotonic()
        if woken:
            sleeper.wake()
        else:
            sleeper.kill(group=False)
        assert sleeper.finish(RUN_S) == (EXIT_DONE if woken else -signal.SIGKILL), sleeper.errors
        assert other.finish(RUN_S) == EXIT_DONE, other.errors
        return time.monotonic() - started

"""A pipeline's processes killed at crash points and at random, or asleep; its cluster killed: what is lost or twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from calve.sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE
from tests.e2e.faults.outcomes import Outcome
from tests.e2e.faults.slots.processes import NONE, Run, Strike, alive

DRIVER = (
    "publish.after-fence",
    "publish.after-begin",
    "publish.after-events",
    "publish.after-offsets",
    "publish.after-commit",
    "generation.after-record",
    "generation.after-fence",
)
SLOT = (
    "slot.before-init",
    "slot.after-init",
    "slot.after-check",
    "transaction.after-begin",
    "transaction.mid-produce",
    "transaction.after-event",
    "transaction.after-offsets",
    "transaction.after-commit",
)
ENDS = (EXIT_DONE, EXIT_UNREACHABLE, -signal.SIGKILL)
AT_WORK_S = 1.5
"""A run's slots work for about so long: kills at random fall into it."""

SLOTS = (4, 2, 6)
ASLEEP = 0.5
"""The share of rounds in which somebody sleeps besides."""


class Difference(Protocol):
    """Of what is there and what should be."""

    @property
    def lost(self) -> int: ...
    @property
    def twice(self) -> int: ...
    @property
    def none(self) -> bool: ...


class World(Protocol):
    """A pipeline whose input is known, and that may be run by any number of slots."""

    def produce(self, number: int) -> None:
        """Input of about so many records."""
        ...

    def start(self, slots: int, strike: Strike = ..., tries: int = ...) -> Run: ...

    def run_to_end(self, slots: int) -> float:
        """Seconds until a run that nobody disturbs has ended well."""
        ...

    def difference(self) -> Difference: ...


@dataclass
class Series:
    """Rounds of one world, each with a fault or more and then a run that nobody disturbs.

    `of` is what its outcomes are called, `points` are crash points beside those of all slots. `by_driver`: it does what
    is to be done itself. `restart` kills the target's broker and starts it again.
    """

    world: World
    seed: int
    per_round: int
    of: str = "mirror"
    points: tuple[str, ...] = ()
    by_driver: bool = False
    restart: Callable[[], None] | None = None
    restart_every: int = 20
    _number: int = 0
    _sleepers: list[tuple[Run, int]] = field(default_factory=list[tuple[Run, int]])

    def run(self, kills: int) -> Iterator[Outcome]:
        """As many kills as asked for, and about a quarter as many processes asleep."""
        chance = random.Random(self.seed)
        left = kills
        with ExitStack() as stack:
            stack.callback(self._end_sleepers)
            while left > 0:
                self._number += 1
                struck = [self._killed(chance) for _ in range(min(left, chance.randint(1, 3)))]
                left -= len(struck)
                if chance.random() < ASLEEP:
                    struck.append(self._asleep(chance))
                if self.restart is not None and self._number % self.restart_every == 0:
                    struck.append(self._target_killed(chance, self.restart))
                yield from self._mended(chance, [each for each in struck if each])

    @property
    def _slots(self) -> int:
        return SLOTS[self._number % len(SLOTS)]

    def _mended(self, chance: random.Random, struck: list[str]) -> Iterator[Outcome]:
        """What became of everything, once all who slept were woken, behind those who did their work."""
        self.world.produce(chance.randint(1, self.per_round))
        took = self.world.run_to_end(self._slots)
        if self._sleepers:
            self._wake()
            took += self.world.run_to_end(self._slots)
        found = self.world.difference()
        for each in struck:
            scenario, _, step = each.partition(": ")
            yield Outcome(f"{self.of}: {scenario}", step, found.lost, found.twice, not found.none, round(took, 3))

    def _killed(self, chance: random.Random) -> str:
        """A run of which a process was killed, or its driver with all slots."""
        while True:
            self.world.produce(chance.randint(self.per_round // 2, self.per_round))
            kind = chance.choice(("point", "point", "random"))
            said = self._at_a_point(chance) if kind == "point" else self._at_random(chance)
            if said:
                return said

    def _at_a_point(self, chance: random.Random) -> str:
        point = chance.choice(DRIVER + SLOT + self.points)
        visit = chance.choice(("", "", "@2")) if point in SLOT else ""
        tries = chance.randint(1, 2)
        run = self.world.start(self._slots, Strike(point, f"kill{visit}", chance.randrange(self._slots)), tries)
        code = run.finish()
        assert code in ENDS, run.said
        # A slot that was tried again may have come to its end.
        return f"killed at {point.partition('.')[0]}: {point}" if code != EXIT_DONE or tries == 2 else ""

    def _at_random(self, chance: random.Random) -> str:
        run = self.world.start(self._slots, tries=chance.randint(1, 2))
        if not self.by_driver:
            run.await_note(AT_WORK_S * 4)
        time.sleep(chance.uniform(0, AT_WORK_S))
        whom = "driver" if self.by_driver else chance.choice(("driver", "slot", "all"))
        slots = [pid for pid in run.slots if alive(pid)]
        chance.shuffle(slots)
        pids = {"driver": [run.pids()[0]], "slot": slots[:1], "all": run.pids()}[whom]
        if not run.driver.is_alive() or not pids:
            run.finish()
            return ""
        run.kill(*pids)
        assert run.finish() in ENDS, run.said
        return f"killed at random: {whom}"

    def _asleep(self, chance: random.Random) -> str:
        """Put a process to sleep, for others to do its work; its driver may be killed meanwhile, or wait for it."""
        self.world.produce(chance.randint(self.per_round // 2, self.per_round))
        point = chance.choice(DRIVER + SLOT + self.points)
        run = self.world.start(self._slots, Strike(point, "stop@1", chance.randrange(self._slots)))
        sleeper = run.await_stop()
        if not sleeper:
            run.finish()
            return ""
        self._sleepers.append((run, sleeper))
        if sleeper != run.driver.pid and chance.random() < 0.5:
            run.kill(run.pids()[0])
        return f"asleep at {point.partition('.')[0]}: {point}"

    def _target_killed(self, chance: random.Random, restart: Callable[[], None]) -> str:
        """Kill the target's broker while a run writes to it; what the run makes of it is up to it."""
        self.world.produce(self.per_round)
        run = self.world.start(self._slots, NONE, tries=2)
        run.await_note(AT_WORK_S * 4)
        time.sleep(chance.uniform(0, AT_WORK_S))
        restart()
        assert run.finish() in ENDS, run.said
        return "target's broker killed: "

    def _wake(self) -> None:
        for run, pid in self._sleepers:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
            assert run.finish() in ENDS, run.said
        self._sleepers = []

    def _end_sleepers(self) -> None:
        for run, _ in self._sleepers:
            run.end()

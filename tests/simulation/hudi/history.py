"""Histories of a Hudi table: batches and range jobs are published, several runs commit, are killed and sleep, others
roll back and restore, a lock is lost.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager

import pytest

import calve.sink_core.hudi.commit.examine
import calve.sink_core.hudi.commit.table
import calve.sink_core.hudi.table.table
import calve.sink_core.hudi.table.view
from calve.sink_core.failpoints import reach
from calve.sink_core.rules import ALL, Rules
from tests.simulation.environment import install_chance, wherever
from tests.simulation.hudi.timeline import Fault, properties
from tests.simulation.hudi.world import HudiWorld
from tests.simulation.promises import Promise, Violation
from tests.simulation.stage import Actor

STEPS = 60
BATCHES = 6
LAST_STEPS = 4_000

MIXTURES: Mapping[str, Mapping[str, float]] = {
    "commits": {"publish": 2, "begin": 2, "step": 20, "kill": 1},
    "strangers": {"publish": 2, "begin": 2, "step": 20, "kill": 1, "roll back": 1, "restore": 0.5, "clock": 0.5},
    "lost locks": {"publish": 2, "begin": 3, "step": 20, "kill": 0.5, "lose the lock": 1},
    "changes": {"publish": 2, "begin": 2, "step": 20, "kill": 1, "roll back": 1, "run ahead": 0.5, "clock": 0.5},
    "changes, lost locks": {"publish": 2, "begin": 3, "step": 20, "kill": 0.5, "lose the lock": 1},
}
"""How often what happens. `changes` are of rows."""


@contextmanager
def installed(world: HudiWorld) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        examine, table = calve.sink_core.hudi.commit.examine, calve.sink_core.hudi.commit.table
        patch.setattr(examine, "read_properties", lambda _place: properties(world.timeline, world.key))
        patch.setattr(examine, "read_timeline", lambda _place: world.timeline.read())
        patch.setattr(examine, "is_archived", lambda _place: False)
        patch.setattr(table, "read_staged", world.read_staged)
        patch.setattr(table, "put_in_place", lambda _place, _staged: world.scheduler.give_way())
        patch.setattr(table, "changes_in", world.changes_in)
        patch.setattr(table, "remove_staged", world.remove_staged)
        for module in (calve.sink_core.hudi.table.view, calve.sink_core.hudi.table.table):
            patch.setattr(module, "extra_of", world.extra_of)
        install_chance(patch, lambda: world)
        wherever(patch, reach, world.reach)
        yield


class History:
    """One, drawn from a seed."""

    def __init__(self, seed: int, mixture: str, rules: Rules = ALL, faults: Collection[Fault] = ()) -> None:
        self.world = HudiWorld(seed, rules, faults, "id" if mixture.startswith("changes") else "")
        self.chance = random.Random(seed)
        self.weights, self.mixture = MIXTURES[mixture], mixture
        self.running: list[Actor] = []
        self.begun = 0

    def run(self) -> HudiWorld:
        """Raises Violation."""
        with installed(self.world):
            for _ in range(STEPS):
                [deed] = self.chance.choices([*self.weights], [*self.weights.values()])
                self._do(deed)
            self._end()
            self.world.judge()
        return self.world

    def _do(self, deed: str) -> None:
        world, chance = self.world, self.chance
        self.running = [each for each in self.running if not each.process.ended]
        if deed == "publish" and len(world.published) < BATCHES:
            world.publish(chance.choice(["batch", "batch", "range job"]))
        elif deed == "begin" and len(self.running) < 3:
            self._begin()
        elif deed == "clock":
            world.clock_ms = chance.choice([0, 5, 50, 5_000])
        elif deed == "roll back" and (pending := [e for e in world.timeline.instants if not e.completed]):
            world.timeline.roll_back_pending(chance.choice(pending).requested)
            world.note("SOMEBODY rolls back what is pending")
        elif deed == "restore":
            world.restore()
        elif deed == "run ahead":
            world.run_ahead(chance.choice([5, 500, 5_000]))
        elif deed == "lose the lock" and world.locks:
            world.locks.clear()
            world.lock_lost = True
            world.note("the lock is LOST")
            self.running = [each for each in self.running if not self._finished(each)]
        elif self.running and deed in ("step", "kill"):
            actor = chance.choice(self.running)
            if deed == "step":
                world.step(actor, chance.randint(1, 12))
            else:
                self._kill(actor)

    def _begin(self) -> None:
        name, self.begun = f"run {self.begun}", self.begun + 1
        self.running.append(self.world.spawn(name, lambda: self.world.commit(name), seed=self.begun, loss=0))

    def _finished(self, actor: Actor) -> bool:
        if actor.process.at != "hudi.completing":
            return False
        self.world.step(actor, 1)
        return actor.process.ended

    def _kill(self, actor: Actor) -> None:
        """Its JVM completes what has passed its last check, with the lock or without."""
        world = self.world
        if actor.process.at == "hudi.completing" and not actor.process.ended:
            if Fault.LOCK_OF_PYTHON in world.faults:
                # Others have the lock before the JVM has noticed.
                world.locks.clear()
                world.note(f"{actor.process.name} is gone, and its JVM goes on without the lock")
                actor.process.at = ""
                return
            world.step(actor, 1)
        world.kill(actor)

    def _end(self) -> None:
        """All are killed or come to their end, and one commits that nobody disturbs."""
        for actor in self.running:
            if self.chance.random() < 0.5:
                self._kill(actor)
        for _ in range(LAST_STEPS):
            left = [each for each in self.running if not each.process.ended]
            if not left:
                break
            self.world.step(self.chance.choice(left), 1)
        else:
            raise Violation(Promise.PROGRESS, f"{[each.process.name for each in left]} never end")
        for _ in range(2):
            self._begin()
            self.world.step(self.running[-1], LAST_STEPS)
            while not self.running[-1].process.ended and self.running[-1].process.waiting:
                self.world.step(self.running[-1], LAST_STEPS)
        error = self.running[-1].process.error
        if error is not None and not self.world.restored_reported:
            raise Violation(Promise.PROGRESS, f"an undisturbed commit ends with {error}")


def violations(
    seeds: range, mixture: str, rules: Rules = ALL, faults: Collection[Fault] = ()
) -> Iterator[tuple[int, Violation]]:
    """By seed, one after the other."""
    for seed in seeds:
        try:
            History(seed, mixture, rules, faults).run()
        except Violation as error:
            yield seed, error

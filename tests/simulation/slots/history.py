"""Histories of mirrors and sources: a seeded list of actions on a world with slots.

`process` of an action that spawns nothing chooses among those that live then: drivers, and tasks of their slots.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from calve.sink_core.rules import Rules
from tests.failpoints import FAILPOINTS
from tests.simulation.history import ROUNDS, Action, Result
from tests.simulation.promises import Promise, Violation
from tests.simulation.slots.environment import Environment
from tests.simulation.slots.processes import KINDS, do
from tests.simulation.slots.world import SlotWorld
from tests.simulation.stage import Actor

_DRIVERS = ("generation", "publish", "bind", "topics")
_OF_A_KIND = {"mirror": ("transaction.mid-produce",), "source": ("source.after-offsets",)}
"""Failpoints of tasks that only one kind reaches."""


@dataclass(frozen=True)
class Places:
    """Failpoints that histories of a kind can reach, by who reaches them."""

    drivers: tuple[str, ...]
    tasks: tuple[str, ...]
    trims: tuple[str, ...]

    @classmethod
    def of(cls, kind: str) -> Places:
        others = {place for name, places in _OF_A_KIND.items() if name != kind for place in places}
        drivers = [f for f in FAILPOINTS if f.startswith(_DRIVERS) and f != "publish.after-letters"]
        tasks = [f for f in FAILPOINTS if f.startswith(("slot.", "transaction.")) and f not in others]
        if kind == "source":
            drivers.append("source.before-acknowledge")
            tasks += _OF_A_KIND[kind]
        trims = [f for f in FAILPOINTS if f.startswith("trim.") and f != "trim.after-part"]
        return cls(tuple(drivers), tuple(tasks), tuple(trims))

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.drivers, *self.tasks, *self.trims)

    @property
    def within(self) -> str:
        """Within a task's transaction, where it has something in it."""
        return next(each for places in _OF_A_KIND.values() for each in places if each in self.tasks)


PLACES = {kind: Places.of(kind) for kind in _OF_A_KIND}

_KINDS = (*("move",) * 6, "keep alive", "keep alive", "give up", "trim", "pause")
_DEEDS = (*("produce",) * 5, "settle upstream", "change slots", "change slots", "speculate", "add partition")
AT_WORK = "its slots are at work"
"""Where a driver waits for its tasks: no failpoint."""

_ENOUGH = 400
"""Rounds after which nobody comes to an end any more."""


def draw(seed: int, mixture: str) -> list[Action]:
    """The actions of a seed."""
    kind, draws = MIXTURES[mixture]
    return _warm_up() + draws(random.Random(seed), PLACES[kind])


def _warm_up() -> list[Action]:
    """Something to move, so that most slots have work."""
    return [Action("deed", what="produce", number=n) for n in range(4)]


def _crowd(chance: random.Random, places: Places) -> list[Action]:
    """Many processes that go on by turns, in small steps and large ones."""
    actions: list[Action] = []
    for number in range(chance.choice((15, 30, 60))):
        lot, who = chance.random(), chance.randrange(64)
        if lot < 0.2 or not number:
            actions.append(_spawn(chance, number))
        elif lot < 0.35:
            actions.append(Action("finish", who))
        elif lot < 0.45:
            actions.append(Action("reach", who, chance.choice(places.all)))
        elif lot < 0.65:
            actions.append(Action("step", who, number=chance.choice((1, 2, 5, 20, 80))))
        elif lot < 0.7:
            actions.append(Action("kill", who))
        elif lot < 0.78:
            actions.append(Action("brokers", number=chance.randrange(8)))
        elif lot < 0.8:
            actions.append(Action("time out"))
        else:
            actions.append(_deed(chance))
    return actions


def _sleepers(chance: random.Random, places: Places) -> list[Action]:
    """Again and again processes fall asleep, others do their work and more, and some of them wake up."""
    actions: list[Action] = []
    for number in range(chance.choice((2, 3, 5))):
        actions += [_deed(chance) for _ in range(chance.choice((1, 2, 4)))]
        actions += chance.choice((_asleep_at_a_place, _overtaken, _tried_again))(chance, places, 10 * number)
        actions += [Action("finish", chance.randrange(64)) for _ in range(chance.choice((0, 1, 3)))]
    return actions


def _asleep_at_a_place(chance: random.Random, places: Places, number: int) -> list[Action]:
    """A process, and others go by."""
    actions = [_spawn(chance, number), Action("reach", -1, chance.choice([*places.drivers, AT_WORK]))]
    for other in range(chance.choice((0, 1, 2))):
        actions += [_deed(chance), _spawn(chance, number + 1 + other), Action("finish", -1)]
    return actions


def _overtaken(chance: random.Random, places: Places, number: int) -> list[Action]:
    """The tasks of one generation, and those of the next, whose driver may have slept while the first went on."""
    actions = [*_at_work(chance, places, number), Action("deed", what="change slots", number=chance.getrandbits(30))]
    actions += [_deed(chance) for _ in range(chance.choice((0, 1, 3)))]
    actions.append(_spawn(chance, number + 1, chance.choice(("move", "move", "keep alive"))))
    if chance.random() < 0.7:
        actions.append(Action("reach", -1, chance.choice(places.drivers)))
        actions.append(Action("step", -1, number=chance.choice((0, 1, 2, 3, 5, 8))))
        for _ in range(chance.choice((1, 2, 3))):
            earlier = -chance.randint(2, 6)
            actions.append(chance.choice((Action("finish", earlier), Action("reach", earlier, _later(chance, places)))))
    actions.append(Action("reach", -1, AT_WORK))
    if chance.random() < 0.5:
        actions.append(Action("finish", -1))
    else:
        actions += [Action("reach", -1 - n, _later(chance, places)) for n in range(chance.randint(1, 3))]
    return [*actions, *(Action("finish", chance.randrange(64)) for _ in range(chance.choice((2, 4))))]


def _tried_again(chance: random.Random, places: Places, number: int) -> list[Action]:
    """A task, beside an attempt of it that still lives."""
    actions = _at_work(chance, places, number)
    actions += [
        Action("deed", what="speculate", number=chance.getrandbits(30)),
        Action("reach", -1, chance.choice(places.tasks)),
    ]
    actions.append(Action("step", -1, number=chance.choice((0, 1, 2, 3))))
    return [*actions, *(Action("finish", -chance.randint(2, 6)) for _ in range(3)), Action("finish", -1)]


def _at_work(chance: random.Random, places: Places, number: int) -> list[Action]:
    """A driver whose tasks sleep, and that may die."""
    asleep = chance.choice((*places.tasks, *("slot.before-init",) * 3))
    actions = [_spawn(chance, number, "move"), Action("reach", -1, AT_WORK)]
    actions += [Action("reach", -1 - n, asleep) for n in range(chance.randint(1, 6))]
    return actions + ([Action("kill", chance.randrange(64))] if chance.random() < 0.3 else [])


def _later(chance: random.Random, places: Places) -> str:
    """Where a task has read its positions."""
    return chance.choice(("slot.after-check", places.within, "transaction.after-offsets"))


MIXTURES: dict[str, tuple[str, Callable[[random.Random, Places], list[Action]]]] = {
    "slots": ("mirror", _crowd),
    "slots asleep": ("mirror", _sleepers),
    "slots of a source": ("source", _crowd),
    "slots of a source asleep": ("source", _sleepers),
}
"""By name the kind whose slots they are."""


def _spawn(chance: random.Random, number: int, kind: str = "") -> Action:
    return Action("spawn", number, kind or chance.choice(_KINDS), chance.getrandbits(30))


def _deed(chance: random.Random) -> Action:
    return Action("deed", what=chance.choice(_DEEDS), number=chance.getrandbits(30))


@dataclass
class History:
    """Runs actions, then lets a driver move everything, then wakes the processes that were left behind.

    `make` makes the world of a seed.
    """

    environment: Environment
    make: Callable[[int, Rules], SlotWorld]
    seed: int
    asleep: set[str] = field(default_factory=set[str])

    def run(self, actions: Sequence[Action] | None, mixture: str) -> Result:
        """The seed's own actions unless others are given."""
        random.seed(self.seed)
        world = self.environment.world = self.make(self.seed, self.environment.rules)
        violation: str | None = None
        promise: Promise | None = None
        try:
            for action in draw(self.seed, mixture) if actions is None else actions:
                self.act(world, action)
            self.end(world)
        except Violation as broken:
            violation, promise = str(broken), broken.promise
        finally:
            for actor in world.alive:
                world.kill(actor)
        return Result(self.seed, violation, world.trace, world.visits, world.outcomes, promise)

    def act(self, world: SlotWorld, action: Action) -> None:
        chosen = world.alive[action.process % len(world.alive)] if world.alive else None
        match action.kind:
            case "spawn":
                loss = random.Random(action.number).choice((0.0, 0.0, 0.02, 0.1))
                main = partial(KINDS[action.what], world)
                world.spawn(f"{action.what} {len(world.actors)}", main, seed=action.number, loss=loss)
            case "step" if chosen:
                world.step(chosen, action.number)
            case "reach" if chosen:
                self.to_a_place(world, chosen, action.what)
            case "finish" if chosen:
                self.to_its_end(world, chosen)
            case "kill" if chosen:
                world.kill(chosen)
            case "brokers":
                network = "target" if action.number % 3 else [*world.networks][-1]
                world.networks[network].cluster.run_pending(action.number)
            case "time out":
                world.target.time_out()
            case "deed":
                do(world, action.what, random.Random(action.number))
            case _:
                pass

    def end(self, world: SlotWorld) -> None:
        """Undisturbed: all is moved, whoever sleeps meanwhile and wakes up then."""
        world.calm = True
        world.deed("settle upstream", world.chance)
        sleeping = world.alive
        self.asleep |= {actor.process.name for actor in sleeping}
        world.note("--- undisturbed")
        # Who has paused it may be dead.
        self.alone(world, "pause")
        self._catch_up(world)
        world.note("--- those left behind wake up")
        for actor in sleeping:
            self.to_its_end(world, actor)
        self.alone(world, "keep alive")
        self.alone(world, "trim")
        self._catch_up(world)
        world.oracle.check_end()

    def alone(self, world: SlotWorld, kind: str) -> None:
        """One more process from its beginning to its end."""
        actor = world.spawn(f"{kind} alone {len(world.actors)}", partial(KINDS[kind], world), seed=0, loss=0.0)
        if not self.to_its_end(world, actor):
            raise Violation(Promise.PROGRESS, f"{actor.process.name} does not come to an end")

    def to_a_place(self, world: SlotWorld, actor: Actor, place: str) -> None:
        """Let a process go on to a failpoint, its end, or until it waits for its tasks; there it falls asleep."""
        for _ in range(_ENOUGH):
            world.settle()
            world.step_to(actor, place)
            if actor.process.ended or actor.process.at == place or self.tasks(world, actor):
                break
        world.note(f"{actor.process.name} sleeps at {actor.process.at}")
        self.asleep.add(actor.process.name)

    def tasks(self, world: SlotWorld, driver: Actor) -> list[Actor]:
        """Those of a driver that live."""
        return [actor for actor in world.alive if actor.process.name.endswith(f" of {driver.process.name}")]

    def to_its_end(self, world: SlotWorld, actor: Actor) -> bool:
        """Let a process and its tasks go on to their end; False if it waits for a task that sleeps."""
        self.asleep.discard(actor.process.name)
        for turn in range(_ENOUGH):
            world.settle()
            world.step(actor, 10_000)
            if actor.process.ended:
                world.settle()
                return True
            tasks = self.tasks(world, actor)
            if any(task.process.name in self.asleep for task in tasks) and turn % 2:
                return False
            for task in tasks:
                world.step(task, 10_000)
            if not tasks or turn % 10 == 9:
                # What waits now waits for a transaction that a process left open.
                world.target.time_out()
        raise Violation(Promise.PROGRESS, f"{actor.process.name} does not come to an end")

    def _catch_up(self, world: SlotWorld) -> None:
        before: object = None
        for _ in range(ROUNDS):
            self.alone(world, "move")
            now = world.position
            if now == before:
                return
            before = now
        raise Violation(Promise.PROGRESS, f"not caught up after {ROUNDS} undisturbed rounds")

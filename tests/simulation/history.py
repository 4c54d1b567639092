"""A history: a seeded list of actions, run on a world of its own.

The list is drawn before anything runs, so that it can be shortened by leaving actions out and still means something.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from calve.sink_core.config.sink_pipeline import SinkPipeline
from tests.failpoints import FAILPOINTS
from tests.simulation import users
from tests.simulation.environment import Environment
from tests.simulation.processes import KINDS
from tests.simulation.promises import Promise, Violation
from tests.simulation.stage import Actor
from tests.simulation.world import World

ROUNDS = 25
"""Undisturbed rounds after which a pipeline must have caught up."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """What makes a history: kinds of processes and what others do to the world; of what stands there twice there is
    twice as much.
    """

    kinds: Sequence[str]
    mild: Sequence[str] = (*("produce",) * 6, *sorted(users.MILD))
    harsh: Sequence[str] = tuple(sorted(users.HARSH))
    duels: float = 0.4
    """How likely a history is one of duels, which is short, else of a crowd."""
    merged: bool = False
    """Whether batches are merged into the data tables on staging branches."""

    def places(self, kind: str) -> list[str]:
        """Failpoints that a kind of process can reach."""
        return PLACES[kind] + (4 * MERGING if self.merged and kind in ("run", "commit") else [])

    @property
    def answers(self) -> bool:
        return "resolve" in self.kinds


DRAWN = {
    "ingestion": Mixture(("run",) * 4 + ("publish",) * 3 + ("commit",) * 4 + ("pause",)),
    "everything": Mixture((*("run", "commit") * 3, *("publish", "trim") * 2, "keep alive", "orphans", "expire")),
    "answers": Mixture(("run", "publish", *("commit",) * 2, *("resolve",) * 3, "orphans", "trim", "keep alive")),
    "refills": Mixture((*("resolve",) * 4, "commit", "publish", "orphans")),
    "lost log": Mixture(
        (*("resolve",) * 4, *("publish", "commit") * 2, "run", "orphans", "trim"),
        harsh=tuple(sorted(users.HARSH | users.LOST_LOG)),
    ),
    "sleepers": Mixture(("publish", "commit", "commit", "orphans")),
    "replays": Mixture((*("replay",) * 4, *("run", "publish") * 2, *("commit",) * 2, "orphans", "trim", "expire")),
    "replays and answers": Mixture((*("replay",) * 3, *("resolve",) * 3, "publish", "commit", "orphans")),
    "hosts of two versions": Mixture((*("replay",) * 2, *("old publish", "old commit") * 3, "run", "trim")),
    "guardians": Mixture(("run", "publish", "publish", "commit", "keep alive", *("orphans",) * 3, *("trim",) * 3)),
    "a table added": Mixture(
        (*("run",) * 3, "publish", "commit", *("stale publish",) * 2, "stale commit", "resolve", "trim", "orphans"),
        mild=(*("produce",) * 4, *("add table",) * 4, "append", "compact", "add partition"),
        harsh=users.TO_TABLES,
    ),
}
"""Of which a seed draws one."""

MIXTURES = DRAWN | {
    "rare answers": Mixture(
        (*("resolve",) * 2, "publish", "commit"),
        mild=(*("produce",) * 3, "append"),
        harsh=("drop", "recreate topic", *("reset positions",) * 2, *sorted(users.LOST_LOG)),
        duels=1.0,
    ),
    "merges": Mixture(
        ("run", "publish", "publish", *("commit",) * 4, *("expire",) * 4, "orphans", "trim"),
        mild=(*("produce",) * 4, *("append",) * 2, "compact", "save", "add partition"),
        duels=0.7,
        merged=True,
    ),
}
"""With what a campaign goes where the drawn ones seldom get."""

_TASKS = {
    "run": ("bind", "plan", "write", "publish", "commit", "range"),
    "publish": ("bind", "plan", "write", "publish"),
    "commit": ("commit",),
    "keep alive": ("publish",),
    "pause": ("bind",),
    "trim": ("trim",),
    "orphans": ("orphans", "publish"),
    "expire": ("commit",),
    "resolve": ("resolve", "range", "publish", "commit"),
    "replay": ("range", "replay", "publish", "commit"),
    "old publish": ("bind", "plan", "write", "publish"),
    "old commit": ("commit",),
    "stale publish": ("bind", "plan", "write", "publish"),
    "stale commit": ("commit",),
}
PLACES = {kind: [f for f in FAILPOINTS if f.partition(".")[0] in tasks] for kind, tasks in _TASKS.items()}
"""Failpoints that a kind of process can reach, but for those of merges."""

MERGING = [f for f in FAILPOINTS if f.startswith("merge.")]

WITH_FILES = ("range.after-files", "range.after-manifests", "resolve.after-files")
"""Where an answer or a range job has written files that no event names yet."""


@dataclass(frozen=True, slots=True)
class Action:
    """What happens next: `what` names a kind of process, a failpoint or a deed, `number` is steps or a seed."""

    kind: Literal["spawn", "step", "reach", "finish", "kill", "brokers", "time out", "deed"]
    process: int = 0
    what: str = ""
    number: int = 0


@dataclass(slots=True)
class Result:
    """How a history ended. `violation` None: nothing was broken, else `promise` is what was."""

    seed: int
    violation: str | None
    trace: list[str]
    visits: Counter[str]
    outcomes: Counter[str]
    promise: Promise | None = None


def draw(seed: int, mixture: str | None = None) -> list[Action]:
    """The actions of a seed, of a `mixture` of processes that is drawn as well if it is not given."""
    chance = random.Random(seed)
    actions = _warm_up(chance.choice(("commit", "orphans"))) if chance.random() < 0.5 else []
    mix = MIXTURES[mixture or chance.choice(list(DRAWN))]
    return actions + (_duels(chance, mix) if chance.random() < mix.duels else _crowd(chance, mix))


def _duels(chance: random.Random, mix: Mixture) -> list[Action]:
    """Again and again one process falls asleep at a failpoint, others go by, and it wakes up."""
    actions: list[Action] = []
    number = 0
    for _ in range(chance.choice((2, 4, 8))):
        actions.append(_deed(chance, mix, harsh=False))
        if mix.answers and chance.random() < 0.4:
            actions += _asleep_over_an_answer(chance, number, mix)
            number += 5
            continue
        if mix.answers:
            what = "drop" if chance.random() < 0.4 else chance.choice(mix.harsh)
            actions += [Action("deed", what=what, number=chance.getrandbits(30)), _spawn(chance, number, "resolve")]
            actions.append(Action("finish", number))
            number += 1
        if chance.random() < 0.5:
            actions += [_spawn(chance, number, "publish"), Action("finish", number)]
        sleeper, number = number + 1, number + 2
        kind = chance.choice(mix.kinds)
        actions += [_spawn(chance, sleeper, kind), Action("reach", sleeper, chance.choice(mix.places(kind)))]
        for _ in range(chance.choice((1, 1, 2, 3))):
            if chance.random() < 0.2:
                actions.append(_deed(chance, mix, harsh=chance.random() < 0.5))
            actions += [_spawn(chance, number, chance.choice(mix.kinds)), Action("finish", number)]
            number += 1
        if chance.random() < 0.8:
            actions.append(Action("finish", sleeper))
    return actions


def _asleep_over_an_answer(chance: random.Random, sleeper: int, mix: Mixture) -> list[Action]:
    """An answer or a range job falls asleep with its files written, and what others then do makes them worthless."""
    others = chance.choice((["orphans"] * 2, [chance.choice(mix.kinds) for _ in range(3)]))
    actions = [_deed(chance, mix, harsh=True), _spawn(chance, sleeper, "resolve")]
    actions.append(Action("reach", sleeper, chance.choice(WITH_FILES)))
    for number, kind in enumerate(others, sleeper + 1):
        actions += [_spawn(chance, number, kind), Action("finish", number)]
    return [*actions, Action("finish", sleeper)]


def _crowd(chance: random.Random, mix: Mixture) -> list[Action]:
    """Many processes that go on by turns, in small steps and large ones."""
    harm, alone = chance.choice((0, 0, 1, 2, 4)), chance.choice((0.0, 0.3, 0.6))
    harm += 3 if mix.answers else 0
    actions: list[Action] = []
    alive: list[int] = []
    for number in range(chance.choice((15, 30, 60))):
        lot = chance.random()
        if lot < 0.4 or not alive:
            alive.append(number)
            kind = chance.choice(mix.kinds)
            actions.append(_spawn(chance, number, kind))
            if (how := chance.random()) < alone:
                actions.append(Action("finish", number))
            elif how > 0.8:
                actions.append(Action("reach", number, chance.choice(mix.places(kind))))
            else:
                actions.append(Action("step", number, number=chance.choice((1, 3, 10, 30, 100, 300))))
        elif lot < 0.62:
            actions.append(Action("step", chance.choice(alive), number=chance.choice((1, 2, 5, 20, 80))))
        elif lot < 0.67:
            actions.append(Action("kill", alive.pop(chance.randrange(len(alive)))))
        elif lot < 0.77:
            actions.append(Action("brokers", number=chance.randrange(8)))
        elif lot < 0.79:
            actions.append(Action("time out"))
        else:
            harsh = harm > 0 and chance.random() < 0.3
            harm -= harsh
            actions.append(_deed(chance, mix, harsh=harsh))
    if chance.random() < 0.5:
        # Else they sleep until everything else has been done without them.
        actions += [Action("finish", number) for number in chance.sample(alive, len(alive))]
    return actions


def _spawn(chance: random.Random, number: int, kind: str) -> Action:
    return Action("spawn", number, kind, chance.getrandbits(30))


def _deed(chance: random.Random, mix: Mixture, *, harsh: bool) -> Action:
    return Action("deed", what=chance.choice(mix.harsh if harsh else mix.mild), number=chance.getrandbits(30))


def _warm_up(second: str) -> list[Action]:
    """A pipeline that has run before. The first orphan removal of a table deletes nothing."""
    return [
        Action("deed", what="produce", number=1),
        Action("deed", what="produce", number=2),
        Action("spawn", -1, "run", 2),
        Action("finish", -1),
        Action("spawn", -2, second, 2),
        Action("finish", -2),
    ]


@dataclass
class History:
    """Runs actions, then lets everything come to its end, then wakes the processes that were left behind."""

    environment: Environment
    pipelines: tuple[SinkPipeline, SinkPipeline]
    seed: int
    actors: dict[int, Actor] = field(default_factory=dict[int, Actor])

    def run(self, actions: Sequence[Action] | None = None, mixture: str | None = None) -> Result:
        """The seed's own actions unless others are given."""
        random.seed(self.seed)
        world = self.environment.world = World(self.seed, self.pipelines, self.environment.rules, self.environment.bugs)
        violation: str | None = None
        promise: Promise | None = None
        if mixture is not None and MIXTURES[mixture].merged:
            world.merged = frozenset(table.name for table in self.pipelines[1].tables)
        try:
            for action in draw(self.seed, mixture) if actions is None else actions:
                self._act(world, action)
            self._end(world)
        except Violation as broken:
            violation, promise = str(broken), broken.promise
        finally:
            for actor in list(world.actors.values()):
                world.kill(actor)
        return Result(self.seed, violation, world.trace, world.visits, world.outcomes, promise)

    def _act(self, world: World, action: Action) -> None:
        match action.kind:
            case "spawn":
                name = f"{action.what} {action.process}"
                loss = random.Random(action.number).choice((0.0, 0.0, 0.02, 0.1))
                main = partial(KINDS[action.what], world)
                self.actors[action.process] = world.spawn(name, main, seed=action.number, loss=loss)
            case "step" if action.process in self.actors:
                world.step(self.actors[action.process], action.number)
            case "reach" if action.process in self.actors:
                world.step_to(self.actors[action.process], action.what)
            case "finish" if action.process in self.actors:
                self._to_its_end(world, self.actors[action.process])
            case "kill" if action.process in self.actors:
                world.kill(self.actors[action.process])
            case "brokers":
                world.cluster.run_pending(action.number)
            case "time out":
                world.cluster.time_out()
            case "deed":
                try:
                    users.DEEDS[action.what](world, random.Random(action.number))
                except FileNotFoundError as error:
                    raise Violation(Promise.FILES_STAY, f"{action.what}: a table lacks its file {error}") from error
            case _:
                pass

    def _end(self, world: World) -> None:
        world.calm = True
        sleeping = [actor for actor in self.actors.values() if not actor.process.ended]
        world.note("--- undisturbed")
        self._alone(world, "pause")
        self._catch_up(world)
        world.note("--- those left behind wake up")
        for actor in sleeping:
            self._to_its_end(world, actor)
        self._alone(world, "orphans")
        self._alone(world, "trim")
        if self._catch_up(world):
            world.oracle.check_end()

    def _catch_up(self, world: World) -> bool:
        """Runs until nothing changes any more; False if a finding stands that nobody can mend."""
        before: object = None
        for _ in range(ROUNDS):
            world.stopped_on.clear()
            self._alone(world, "run")
            stopped_on = sorted(world.stopped_on)
            if stopped_on and world.chance.random() < 0.5:
                self._alone(world, "resolve")
                continue
            mended = [users.mend(world, *found) for found in stopped_on]
            if mended and not any(mended):
                return False
            now = world.fingerprint()
            if now == before and not world.stopped_on:
                return True
            before = now
        found = f"not caught up after {ROUNDS} undisturbed rounds; findings {sorted(world.stopped_on)}"
        raise Violation(Promise.PROGRESS, found)

    def _alone(self, world: World, kind: str) -> None:
        name = f"{kind} alone {len(world.actors)}"
        self._to_its_end(world, world.spawn(name, partial(KINDS[kind], world), seed=0, loss=0.0))

    def _to_its_end(self, world: World, actor: Actor) -> None:
        for _ in range(1000):
            world.cluster.settle()
            world.step(actor, 10_000)
            if actor.process.ended:
                world.cluster.settle()
                return
            # What waits now waits for a transaction that a process left open.
            world.cluster.time_out()
        raise Violation(Promise.PROGRESS, f"{actor.process.name} does not come to an end")

"""Histories of slots that were made for one rule each: with it off they break a promise, with all on none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from calve.sink_core.rules import ALL, Rules
from tests.simulation.promises import Crash, Promise, Violation
from tests.simulation.slots.environment import Environment, installed
from tests.simulation.slots.history import AT_WORK, PLACES, History
from tests.simulation.slots.processes import KINDS
from tests.simulation.slots.sources import SourceWorld
from tests.simulation.slots.world import MirrorWorld
from tests.simulation.slots.worlds import worlds
from tests.simulation.stage import Actor

TO_POSITIONS = 2
"""Effects from where a generation was recorded, or a slot begins, to behind a read that comes too early."""


class Directed(History):
    """A history whose actions are written down. Each partition has three records at first."""

    def __init__(self, environment: Environment, directory: Path, kind: str) -> None:
        super().__init__(environment, worlds(directory)[kind], 0)
        self.world = environment.world = self.make(0, environment.rules)
        self.places = PLACES[kind]
        if isinstance(self.world, MirrorWorld):
            self.world.produce([at for at in self.world.partitions for _ in range(3)], transaction=False)
        elif isinstance(self.world, SourceWorld):
            self.world.system.lines = {f"f{number}": 3 for number in range(5)}

    def driver(self, slots: int, kind: str = "move") -> Actor:
        """One that may use so many slots."""
        self.world.slots = slots
        name = f"{kind} {len(self.world.actors)}"
        return self.world.spawn(name, partial(KINDS[kind], self.world), seed=0, loss=0.0)

    def at_work(self, slots: int, place: str) -> tuple[Actor, list[Actor]]:
        """A driver and its tasks, which sleep at a place."""
        driver = self.driver(slots)
        self.go_on(driver, AT_WORK)
        tasks = self.tasks(self.world, driver)
        assert len(tasks) == slots
        for task in tasks:
            self.go_on(task, place)
        return driver, tasks

    def go_on(self, actor: Actor, place: str) -> None:
        self.to_a_place(self.world, actor, place)

    def wake(self, *actors: Actor) -> None:
        for actor in actors:
            self.to_its_end(self.world, actor)

    def overtaken(self) -> list[str]:
        """What tasks of the first generation said when they woke up."""
        return [outcome.overtaken for outcome in self.world.jobs[0].outcomes.values()]


def four_and_two(history: Directed, place: str) -> None:
    """Four slots sleep at a place. The next generation has two, of which one sleeps within its transaction while the
    others of the first wake up.
    """
    _, first = history.at_work(4, place)
    driver = history.driver(2)
    history.go_on(driver, AT_WORK)
    zero, one = history.tasks(history.world, driver)
    history.go_on(zero, history.places.within)
    history.wake(one, *first[1:], zero, driver, first[0])


def fenced_before_it_is_recorded(history: Directed) -> None:
    """Slots take their ids, and look, between a generation's fence and its record, if that is the order."""
    _, first = history.at_work(4, "slot.before-init")
    driver = history.driver(1)
    history.go_on(driver, "publish.after-events")
    for task in first:
        history.go_on(task, "slot.after-check")
    history.go_on(driver, AT_WORK)
    (only,) = history.tasks(history.world, driver)
    history.go_on(only, "slot.after-check")
    history.wake(*first[1:], only, driver)


def read_before_the_fence(history: Directed, kind: str) -> None:
    """Slots commit between a driver's look at the positions, if that comes first, and the fence."""
    _, first = history.at_work(2, "transaction.mid-produce")
    driver = history.driver(2, kind)
    history.go_on(driver, "generation.after-record")
    history.world.step(driver, TO_POSITIONS)
    history.wake(*first, driver)


def looked_before_it_fenced(history: Directed) -> None:
    """The first attempt of a task commits between the look of the second, if it is before its fence, and the fence."""
    driver = history.driver(1)
    history.go_on(driver, AT_WORK)
    (first,) = history.tasks(history.world, driver)
    history.go_on(first, "transaction.after-event")
    history.world.jobs[-1].attempt(0)
    second = history.tasks(history.world, driver)[-1]
    history.go_on(second, "slot.before-init")
    history.world.step(second, TO_POSITIONS)
    history.wake(first, second, driver)


def tried_again_behind_a_commit(history: Directed) -> None:
    """A task's second attempt begins where the plan does, and the first has committed a part of it by then."""
    driver = history.driver(2)
    history.go_on(driver, AT_WORK)
    first, _ = history.tasks(history.world, driver)
    history.go_on(first, "transaction.after-commit")
    history.world.jobs[-1].attempt(0)
    history.wake(history.tasks(history.world, driver)[-1], first, driver)


def beside_anothers_transaction(history: Directed) -> None:
    """Another connector's transaction is open in the offsets topic, before the offsets that a generation stores."""
    world = history.world
    assert isinstance(world, SourceWorld)
    _, first = history.at_work(2, "slot.after-check")
    world.leave_open()
    for task in first:
        history.go_on(task, "transaction.after-commit")
    driver = history.driver(2)
    history.go_on(driver, AT_WORK)
    history.wake(driver, *first)


LATE = {
    "late before its init": ("slot.before-init", "slot_compares_the_token"),
    "late after its check": ("slot.after-check", "slots_are_fenced"),
    "late within its transaction": ("", "slots_are_fenced"),
}
"""Where slots of each kind sleep, within a transaction of its own kind, and the rule."""

SCENES: dict[str, tuple[str, Callable[[Directed], None], str, Promise]] = {
    **{
        f"{kind}: {name}": (kind, partial(four_and_two, place=place or PLACES[kind].within), rule, Promise.COPIED_ONCE)
        for kind in PLACES
        for name, (place, rule) in LATE.items()
    },
    "between fence and record": (
        "mirror",
        fenced_before_it_is_recorded,
        "generation_is_recorded_first",
        Promise.COPIED_ONCE,
    ),
    "between positions and fence": (
        "mirror",
        partial(read_before_the_fence, kind="move"),
        "positions_are_read_after_the_fence",
        Promise.TRUE_FINDINGS,
    ),
    "between positions and fence of keep-alive": (
        "mirror",
        partial(read_before_the_fence, kind="keep alive"),
        "positions_are_read_after_the_fence",
        Promise.POSITIONS_FOLLOW,
    ),
    "between look and fence of a second attempt": (
        "mirror",
        looked_before_it_fenced,
        "slot_fences_first",
        Promise.COPIED_ONCE,
    ),
    "behind a commit of a former try": (
        "source",
        tried_again_behind_a_commit,
        "former_try_is_noticed",
        Promise.COPIED_ONCE,
    ),
    "beside another connector's transaction": (
        "source",
        beside_anothers_transaction,
        "offsets_are_settled",
        Promise.TRUE_FINDINGS,
    ),
}


def play(
    kind: str, scene: Callable[[Directed], None], directory: Path, rules: Rules = ALL
) -> tuple[Directed, Violation | Crash | None]:
    """A scene, and then a history's end; with what was broken."""
    broken: Violation | Crash | None = None
    with installed(rules) as environment:
        history = Directed(environment, directory, kind)
        try:
            scene(history)
            history.end(history.world)
        except (Violation, Crash) as error:
            broken = error
        finally:
            for actor in history.world.alive:
                history.world.kill(actor)
    return history, broken


@pytest.mark.parametrize("name", SCENES)
def test_a_rule_is_what_stops_it(name: str, tmp_path: Path) -> None:
    kind, scene, rule, promise = SCENES[name]
    _, broken = play(kind, scene, tmp_path, replace(ALL, **{rule: False}))
    assert isinstance(broken, Violation)
    assert broken.promise is promise


@pytest.mark.parametrize("name", SCENES)
def test_with_every_rule_no_promise_is_broken(name: str, tmp_path: Path) -> None:
    kind, scene, _, _ = SCENES[name]
    history, broken = play(kind, scene, tmp_path)
    assert broken is None
    assert history.world.position


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind in PLACES for place in PLACES[kind].tasks])
def test_slots_that_wake_up_late_say_that_they_were_overtaken(kind: str, place: str, tmp_path: Path) -> None:
    history, broken = play(kind, partial(four_and_two, place=place), tmp_path)
    assert broken is None
    said = history.overtaken()
    # What was committed before anybody fenced it is all that a slot had to do.
    assert len(said) == 4
    assert all(said) or place == "transaction.after-commit"

"""What a process of a history with slots does, and what others do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable

from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.control.trim import trim
from tests.simulation.slots.world import MOST_SLOTS, SlotWorld


def move(world: SlotWorld) -> None:
    world.move()


def keep_alive(world: SlotWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            plane.keep_alive()


def give_up(world: SlotWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            plane.give_up()


def pause_and_resume(world: SlotWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            bound = plane.bind()
            plane.log.append(Paused(pipeline_id=bound.pipeline_id, by="u", reason="r"))
            plane.log.append(Resumed(pipeline_id=bound.pipeline_id, by="u"))


def trim_log(world: SlotWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            trim(plane, older_than_s=0.0)


KINDS: dict[str, Callable[[SlotWorld], None]] = {
    "move": move,
    "keep alive": keep_alive,
    "give up": give_up,
    "pause": pause_and_resume,
    "trim": trim_log,
}


def change_slots(world: SlotWorld, chance: random.Random) -> None:
    world.slots = chance.randint(1, MOST_SLOTS)


def speculate(world: SlotWorld, chance: random.Random) -> None:
    """A task is run again beside its first attempt."""
    running = [(job, number) for job in world.jobs for number in job.attempts if number not in job.outcomes]
    if running:
        job, number = chance.choice(running)
        job.attempt(number)


def do(world: SlotWorld, what: str, chance: random.Random) -> None:
    """A deed: what is done to tasks by all alike, what is done to what they read as the world has it."""
    match what:
        case "change slots":
            change_slots(world, chance)
        case "speculate":
            speculate(world, chance)
        case _:
            world.deed(what, chance)

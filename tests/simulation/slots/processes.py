"""What a process of a mirror's history does, and what people and other programs do to both clusters meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable

from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.control.trim import trim
from calve.sink_core.mirror.run import run_mirror
from tests.simulation.broker import Outcome
from tests.simulation.slots.world import MOST_SLOTS, MirrorWorld

ENDLESS_S = 1e9
MOST_PARTITIONS = 4


def mirror(world: MirrorWorld) -> None:
    with world.plane() as plane:
        world.oracle.check_report(run_mirror(plane, bounds=Bounds(3, ENDLESS_S, 0.0)))


def keep_alive(world: MirrorWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            plane.keep_alive()


def give_up(world: MirrorWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            plane.give_up()


def pause_and_resume(world: MirrorWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            bound = plane.bind()
            plane.log.append(Paused(pipeline_id=bound.pipeline_id, by="u", reason="r"))
            plane.log.append(Resumed(pipeline_id=bound.pipeline_id, by="u"))


def trim_log(world: MirrorWorld) -> None:
    with world.plane() as plane:
        if plane.read_only() and plane.bound is not None:
            plane.bind()
            trim(plane, older_than_s=0.0)


KINDS: dict[str, Callable[[MirrorWorld], None]] = {
    "mirror": mirror,
    "mirror keep alive": keep_alive,
    "mirror give up": give_up,
    "mirror pause": pause_and_resume,
    "mirror trim": trim_log,
}


def produce(world: MirrorWorld, chance: random.Random) -> None:
    """Records one by one, or a transaction over several partitions that is committed, aborted or left open."""
    ats = [chance.choice(world.partitions) for _ in range(chance.choice((1, 2, 5, 9)))]
    how = chance.random()
    world.produce(ats, transaction=how < 0.5, committed=how < 0.3, open_=how < 0.05)


def settle_upstream(world: MirrorWorld, chance: random.Random) -> None:
    """What was left open at the source comes to its end, one way or the other."""
    for transaction in list(world.source.transactions.values()):
        if transaction.outcome is Outcome.OPEN:
            end = chance.choice((world.source.commit, world.source.abort))
            end(transaction.transactional_id, transaction.epoch)
    world.source.settle()


def change_slots(world: MirrorWorld, chance: random.Random) -> None:
    world.slots = chance.randint(1, MOST_SLOTS)


def add_partition(world: MirrorWorld, chance: random.Random) -> None:
    topic = chance.choice(sorted(world.source.topics))
    number = len(world.source.topics[topic].logs)
    if number < MOST_PARTITIONS:
        world.source.create_partitions(topic, number + 1)


def speculate(world: MirrorWorld, chance: random.Random) -> None:
    """A task is run again beside its first attempt."""
    running = [(job, number) for job in world.jobs for number in job.attempts if number not in job.outcomes]
    if running:
        job, number = chance.choice(running)
        job.attempt(number)


DEEDS: dict[str, Callable[[MirrorWorld, random.Random], None]] = {
    "produce": produce,
    "settle upstream": settle_upstream,
    "change slots": change_slots,
    "add partition": add_partition,
    "speculate": speculate,
}

"""A mirror killed at each of its crash points, or asleep there until others have done its work."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE
from tests.e2e.faults.mirror.test_mirror_answers_killed import CASES
from tests.e2e.faults.mirror.world import MirrorWorld
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.slots.processes import Strike
from tests.e2e.faults.slots.series import DRIVER, SLOT
from tests.failpoints import MIRRORS
from tests.gate import first_of_each_phase, only

FIRST_USE = ("bind.after-append", "topics.after-create")
POINTS = (*FIRST_USE, *DRIVER, *SLOT)
TESTS = Path(__file__).parents[3]
RECORDS = 3_000
SLOTS = 3

WorldFor = Callable[[str], MirrorWorld]


@pytest.fixture(scope="module")
def world_for(broker: Broker, other_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorldFor:
    """A mirror that has run before; a new one where a first use is what is struck."""

    def make(first_use: bool) -> MirrorWorld:
        directory = tmp_path_factory.mktemp("mirror")
        world = MirrorWorld(directory, broker.bootstrap, other_broker.bootstrap, random.Random(3), partitions=5)
        world.produce(RECORDS)
        if not first_use:
            world.run_to_end(SLOTS)
        return world

    ran: list[MirrorWorld] = []

    def find(failpoint: str) -> MirrorWorld:
        if failpoint in FIRST_USE:
            return make(first_use=True)
        if not ran:
            ran.append(make(first_use=False))
        return ran[0]

    return find


def outcome(world: MirrorWorld, scenario: str, failpoint: str, took: float) -> Outcome:
    found = world.difference()
    return Outcome(scenario, failpoint.partition(".")[0], found.lost, found.twice, not found.none, round(took, 3))


@pytest.mark.parametrize("failpoint", first_of_each_phase(POINTS))
def test_what_is_killed_there_is_made_good_by_the_next_run(failpoint: str, world_for: WorldFor, tell: Tell) -> None:
    world = world_for(failpoint)
    world.produce(RECORDS)
    run = world.start(SLOTS, Strike(failpoint, slot=1))
    code = run.finish()
    # A driver hears of a slot that is gone.
    assert code == (EXIT_UNREACHABLE if failpoint in SLOT else -signal.SIGKILL), run.said
    tell(outcome(world, "mirror: killed at", failpoint, world.run_to_end(SLOTS, tries=1)))


@pytest.mark.parametrize("failpoint", only(["transaction.mid-produce"], of=SLOT))
def test_a_slot_that_is_killed_there_goes_on_in_its_second_try(failpoint: str, world_for: WorldFor, tell: Tell) -> None:
    world = world_for(failpoint)
    world.produce(RECORDS)
    begun = time.monotonic()
    run = world.start(SLOTS, Strike(failpoint, slot=1), tries=2)
    assert run.finish() == EXIT_DONE, run.said
    tell(outcome(world, "mirror: slot killed, tried again at", failpoint, time.monotonic() - begun))


@pytest.mark.parametrize("failpoint", only(["slot.before-init", "transaction.after-event"], of=POINTS[1:]))
def test_what_wakes_up_there_late_changes_nothing(failpoint: str, world_for: WorldFor, tell: Tell) -> None:
    world = world_for(failpoint)
    world.produce(RECORDS)
    run = world.start(SLOTS, Strike(failpoint, "stop@1", slot=1))
    with ExitStack() as stack:
        stack.callback(run.end)
        sleeper = run.await_stop()
        assert sleeper, run.said
        world.produce(RECORDS)
        took = world.run_to_end(1, tries=1)
        os.kill(sleeper, signal.SIGCONT)
        # Overtaken, or fenced: a run that begins again would find nothing to do.
        assert run.finish() in (EXIT_DONE, EXIT_UNREACHABLE), run.said
    world.run_to_end(SLOTS, tries=1)
    tell(outcome(world, "mirror: asleep at", failpoint, took))


def test_every_point_of_slots_is_struck() -> None:
    answers = {failpoint.partition("@")[0] for _, _, failpoint in CASES}
    # What a refused topic leaves is looked at there, beside one that is copied.
    refused = re.findall(r'reached\("([\w.-]+)"', (TESTS / "integration/test_mirror_topics_alone.py").read_text())
    assert {*POINTS, *answers, *refused} >= {name for name in MIRRORS if not name.startswith("groups.")}

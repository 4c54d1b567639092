"""A kill at each named place between two effects, and what is done next; a process asleep there that wakes up late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import RUN_S, prove, run_to_end
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.test_merged_changes import MERGING
from tests.e2e.faults.ways import CASES, EVENTS, STOPS_ON, Way, woken
from tests.e2e.faults.world import World
from tests.failpoints import FAILPOINTS, HUDI, MIRRORS, SOURCES

WorldFor = Callable[[Way, str], World]


FIRST = {failpoint.partition(".")[0]: (way, failpoint) for way, failpoint in reversed(CASES)}
"""By phase the way and the failpoint of every test run; the others are of the long series."""

RUNS = ("run",)
"""Who sleeps there in every test run."""


def each_case(in_gate: Callable[[Way, str], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("way", "failpoint"),
        [
            pytest.param(way, at, id=f"{way.name}-{at}", marks=[] if in_gate(way, at) else [pytest.mark.faults])
            for way, at in CASES
        ],
    )


@pytest.fixture(scope="module")
def world_for(new_world: NewWorld, launcher: Launcher) -> WorldFor:
    """A pipeline that has run before, one for each way and test; a fresh one where it takes a first run.

    A table that was given up after a rebuild stands in the way of the next rebuild, so that the order matters.
    """
    worlds: dict[tuple[str, str], World] = {}

    def find(way: Way, test: str) -> World:
        if way.first_use:
            return new_world(1, max_records=400)
        if (way.name, test) not in worlds:
            worlds[way.name, test] = world = new_world(7, on_spark=way.on_spark, max_records=400)
            world.produce(EVENTS)
            run_to_end(launcher.warm, world)
        return worlds[way.name, test]

    return find


@each_case(lambda way, at: (way, at) in FIRST.values())
def test_what_is_killed_there_is_made_good_by_the_next(
    way: Way, failpoint: str, launcher: Launcher, world_for: WorldFor, tell: Tell
) -> None:
    start, world = launcher.warm, world_for(way, "killed")
    args = way.before(start, world, failpoint)
    process = launcher.warm(args, f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    started = time.monotonic()
    assert way.work(start, world, args) == STOPS_ON.get((way.name, failpoint), [])
    took = time.monotonic() - started
    tell(Outcome.of(f"{way.name}: killed at", failpoint.partition(".")[0], world.difference(), took))
    prove(start, world)


@each_case(lambda way, at: (way, at) in FIRST.values() and way.name in RUNS)
def test_what_wakes_up_there_late_ends_as_documented_and_changes_nothing(
    way: Way, failpoint: str, launcher: Launcher, world_for: WorldFor, tell: Tell
) -> None:
    start, world = launcher.warm, world_for(way, "asleep")
    args = way.before(start, world, failpoint)
    with launcher.warm(args, f"{failpoint}=stop@1").asleep(RUN_S) as sleeper:
        started = time.monotonic()
        way.work(start, world, args)
        took = time.monotonic() - started
        sleeper.wake()
        code = sleeper.finish(RUN_S)
    expected, said = woken(way.name, failpoint)
    everything = f"{sleeper.output_text}\n{sleeper.errors}"
    assert code == expected, everything
    assert said in everything, everything
    run_to_end(start, world)
    tell(Outcome.of(f"{way.name}: asleep at", failpoint.partition(".")[0], world.difference(), took))
    prove(start, world)


def test_every_failpoint_has_a_case() -> None:
    # Those of merges are met by tables that are merged into, in test_merged_changes.py.
    # Parts of a checkpoint are for thousands of range jobs; tests/integration/test_trim.py ends a trim between them.
    # Those of mirrors are in mirror/, and groups are ended between in tests/integration/test_mirror_groups.py.
    # Those of sources are in tests/integration/test_source_kind.py.
    # Those of Hudi tables are in hudi/.
    elsewhere = {*MERGING, "trim.after-part", "task.after-files", *MIRRORS, *SOURCES, *HUDI}
    assert {failpoint for _, failpoint in CASES} | elsewhere == set(FAILPOINTS)

"""kill -9 at seeded moments: every event is in the tables once after the next run."""

from __future__ import annotations

import random
import signal
import time
from functools import partial

import pytest

from calve.sink_core.errors import EXIT_DONE
from tests.e2e.faults.conftest import KILLS, NewWorld
from tests.e2e.faults.kills import RUN_S, Series, prove, run_to_end
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.ways import EVENTS, WAYS, Way, mend
from tests.e2e.faults.world import World

SERIES = 12
"""Parts of the long series, so that several test processes can share it."""

ON_SPARK = 16
"""One in so many kills of the long series is of a run on Spark, in addition."""

PER_COMMAND = 40
"""For so many kills of the long series each other command is killed once."""

COMMANDS = [way for way in WAYS if way.name not in ("first run", "run")]


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How many the long series is asked for."""
    return int(request.config.getoption("--kills", KILLS))


def swift(seed: int, launcher: Launcher, new_world: NewWorld) -> Series:
    """Small batches and small worlds: what a run costs then is what it does between two effects."""

    def world(world_seed: int) -> World:
        return new_world(world_seed, max_records=100)

    return Series(seed, launcher, world, swift=True, per_world=25, events=(10, 60))


def test_ten_swift_runs_killed_lose_and_double_nothing(launcher: Launcher, new_world: NewWorld, tell: Tell) -> None:
    for outcome in swift(40, launcher, new_world).run(10):
        tell(outcome)


@pytest.mark.faults
def test_three_runs_killed_on_spark_lose_and_double_none(launcher: Launcher, new_world: NewWorld, tell: Tell) -> None:
    for outcome in Series(6, launcher, partial(new_world, on_spark=True, spark_from_records=0), cold_every=3).run(3):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SERIES))
def test_a_long_series_of_swift_runs_killed_loses_and_doubles_nothing(
    seed: int, launcher: Launcher, new_world: NewWorld, tell: Tell, kills: int
) -> None:
    for outcome in swift(seed, launcher, new_world).run(kills // SERIES):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [200, 201])
def test_a_long_series_of_runs_killed_on_spark_loses_and_doubles_nothing(
    seed: int, launcher: Launcher, new_world: NewWorld, tell: Tell, kills: int
) -> None:
    for outcome in Series(seed, launcher, partial(new_world, on_spark=True, spark_from_records=0)).run(
        kills // ON_SPARK // 2
    ):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", COMMANDS, ids=lambda way: way.name)
def test_commands_killed_at_any_moment_lose_and_double_nothing(
    way: Way, launcher: Launcher, new_world: NewWorld, tell: Tell, kills: int
) -> None:
    start, chance, world = launcher.warm, random.Random(way.name), new_world(9, on_spark=way.on_spark, max_records=400)
    world.produce(EVENTS)
    run_to_end(start, world)
    seconds: dict[tuple[str, ...], float] = {}
    # A table that was given up stands in the way of the next rebuild.
    places = [place for place in way.failpoints if place != "resolve.after-create"]
    left = kills // PER_COMMAND
    while left:
        args = tuple(way.before(start, world, chance.choice(places)))
        process = start(args)
        if args in seconds:
            process.listen(chance.uniform(0, seconds[args]))
            process.kill(group=chance.random() < 0.5)
        code = process.finish(RUN_S)
        assert code in (EXIT_DONE, -signal.SIGKILL), f"exit code {code}\n{process.output_text}\n{process.errors}"
        # One that nobody disturbs tells how long it takes.
        seconds.setdefault(args, time.monotonic() - process.started)
        begun = time.monotonic()
        if code == EXIT_DONE:
            world.produce(EVENTS)
            mend(start, world, way.choices)
        else:
            left -= 1
            way.work(start, world, args)
            tell(Outcome.of(f"{way.name}: killed", "", world.difference(), time.monotonic() - begun))
    prove(start, world)

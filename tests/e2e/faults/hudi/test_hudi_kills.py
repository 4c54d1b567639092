"""kill -9 and SIGSTOP of runs that commit to Hudi tables: each record is in each table once, each instant is once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Generator

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.timeline import read_timeline
from calve.sink_core.tables.log.events import CommitComplete
from calve.sink_core.tables.log.fold import SINK
from tests import hudi_spark, support
from tests.codes import says
from tests.e2e.faults.conftest import KILLS, NO_SPARK
from tests.e2e.faults.hudi.world import TYPES, HudiWorld
from tests.e2e.faults.kills import RUN_S, Series, done, run_to_end, waited_for
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.processes import Launcher
from tests.gate import only

POINTS = ["hudi.after-check", "hudi.after-adopt", "hudi.in-lock", "hudi.after-commit"]
EVENTS = 60
PER_KILL = 4
"""One in so many of the kills that are asked for is of a run that commits to Hudi tables."""

NewHudiWorld = Callable[[int], HudiWorld]


@pytest.fixture(scope="module")
def new_hudi_world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> NewHudiWorld:
    def make(seed: int) -> HudiWorld:
        directory = tmp_path_factory.mktemp("world") / "files"
        spark = {"remote": NO_SPARK, "tasks": 2}
        return HudiWorld(broker.bootstrap, directory, spark, random.Random(seed), max_records=400)

    return make


@pytest.fixture(scope="module")
def world(new_hudi_world: NewHudiWorld, launcher: Launcher) -> Generator[HudiWorld]:
    """One that has run before, shared; proven at the end."""
    made = new_hudi_world(7)
    made.produce(EVENTS)
    run_to_end(launcher.warm, made)
    yield made
    done(launcher.warm, ["verify", made.file, "--deep"])
    for table_type in TYPES:
        assert made.stored(table_type) == sorted(set(made.stored(table_type)))


@pytest.mark.parametrize("failpoint", POINTS)
def test_what_is_killed_there_is_made_good_by_the_next(
    failpoint: str, launcher: Launcher, world: HudiWorld, tell: Tell
) -> None:
    world.produce(EVENTS)
    process = launcher.warm(["run", world.file], f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    world.produce(EVENTS)
    took = run_to_end(launcher.warm, world)
    tell(Outcome.of("Hudi run: killed at", failpoint.partition(".")[2], world.difference(), took))


@pytest.mark.parametrize("woken", [True, False], ids=["woken", "killed"])
@pytest.mark.parametrize("failpoint", only(["hudi.in-lock"], [n for n in POINTS if n != "hudi.after-commit"]))
def test_while_one_is_asleep_with_the_lock_others_wait(
    failpoint: str, woken: bool, launcher: Launcher, world: HudiWorld, tell: Tell
) -> None:
    world.produce(EVENTS)
    took = waited_for(launcher.warm, ["run", world.file], failpoint, woken=woken)
    run_to_end(launcher.warm, world)
    how = "asleep with the lock, woken" if woken else "asleep with the lock, killed"
    tell(Outcome.of(f"Hudi run: {how}", failpoint.partition(".")[2], world.difference(), took))


def test_three_runs_killed_at_random_lose_and_double_nothing(
    launcher: Launcher, new_hudi_world: NewHudiWorld, tell: Tell
) -> None:
    for outcome in Series(41, launcher, new_hudi_world, swift=True, per_world=25, events=(10, 60)).run(3):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [300, 301])
def test_a_long_series_of_runs_killed_loses_and_doubles_nothing(
    seed: int, launcher: Launcher, new_hudi_world: NewHudiWorld, tell: Tell, request: pytest.FixtureRequest
) -> None:
    kills = int(request.config.getoption("--kills", KILLS)) // PER_KILL // 2
    worlds: list[HudiWorld] = []

    def remembered(world_seed: int) -> HudiWorld:
        worlds.append(new_hudi_world(world_seed))
        return worlds[-1]

    for outcome in Series(seed, launcher, remembered, swift=True, per_world=25, events=(10, 60)).run(kills):
        tell(outcome)
    for world in worlds:
        for table_type in TYPES:
            folder, events = world.folder(table_type), sorted(world.events)
            assert world.stored(table_type) == sorted(set(world.stored(table_type)))
            assert hudi_spark.ids(folder) == events
            completed = [instant.completed for instant in read_timeline(Place(folder, folder)).commits]
            assert (
                hudi_spark.incremental_ids(folder, completed[:: max(1, len(completed) // 5)] + completed[-1:]) == events
            )


def test_a_hudi_client_that_is_killed_costs_a_try_and_no_record(
    launcher: Launcher, world: HudiWorld, tell: Tell
) -> None:
    """Whoever is out of memory is such a one. The end of the run tries again what it could not commit."""
    world.produce(EVENTS)
    with launcher.warm(["run", world.file], "hudi.in-lock=stop@1").asleep(RUN_S) as run:
        [client] = run.java()
        client.kill()
        run.wake()
        code = run.finish(RUN_S)
    assert code == EXIT_DONE, run.output_text
    events = map(SINK.decode, filter(None, support.consume(world.bootstrap, f"calve.test.{world.name}.control")))
    says("\n".join(why for e in events if isinstance(e, CommitComplete) for why in e.reasons.values()), Code.HUDI_JVM)
    took = run_to_end(launcher.warm, world)
    tell(Outcome.of("Hudi's client: killed", "in-lock", world.difference(), took))

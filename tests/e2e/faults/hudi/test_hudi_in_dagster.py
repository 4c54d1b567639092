"""A million events into Hudi tables by Dagster's jobs, of which a hundred and more are killed or sleep."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from calve.orchestration.dagster.sink.names import COMMIT, INGEST
from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.timeline import read_timeline
from tests import hudi_spark
from tests.e2e.faults.child import IN_DAGSTER
from tests.e2e.faults.conftest import KILLS, NO_SPARK
from tests.e2e.faults.hudi.test_hudi_kills import POINTS
from tests.e2e.faults.hudi.world import TYPES, HudiWorld
from tests.e2e.faults.kills import RUN_S, done
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.processes import Launcher, Process

EVENTS = 1_000_000
PER_KILL = 6
"""One in so many of the kills that are asked for is of a Dagster run; with `--kills 720` there are 120."""

PLACES = (
    *POINTS,
    "plan.after-start-commit",
    "write.after-files",
    "write.after-manifests",
    "publish.after-fence",
    "publish.after-events",
    "publish.after-offsets",
    "publish.after-commit",
    "commit.after-swap",
    "commit.before-report",
    "commit.before-complete",
)
SLEEP_S = 6.0
"""How long others go on beside one that is asleep."""


@dataclass
class Deployment:
    """The jobs of a world in Dagster."""

    world: HudiWorld
    launcher: Launcher
    home: Path
    chance: random.Random
    usual_s: float = 10.0

    def start(self, stage: str = INGEST, failpoint: str = "") -> Process:
        return self.launcher.warm([IN_DAGSTER, str(self.home), self.world.file, stage], failpoint)

    def run_to_end(self) -> float:
        """The seconds of a run that nobody disturbs."""
        began, run = time.monotonic(), self.start()
        assert run.finish(RUN_S) == EXIT_DONE, run.errors[-3000:]
        self.usual_s = time.monotonic() - began
        return self.usual_s

    def killed_at(self, place: str) -> str:
        run = self.start(failpoint=f"{place}=kill")
        assert run.finish(RUN_S) == -signal.SIGKILL, f"{place} was not reached: {run.errors[-3000:]}"
        return place

    def killed_at_random(self) -> str:
        run = self.start()
        run.listen(self.chance.uniform(1, self.usual_s))
        run.kill(group=self.chance.random() < 0.5)
        run.finish(RUN_S)
        return "random"

    def asleep_beside_another(self, place: str) -> str:
        """One is asleep while another commits, or waits for its lock; then it wakes, or is killed."""
        woken = self.chance.random() < 0.5
        with self.start(failpoint=f"{place}=stop@1").asleep(RUN_S) as sleeper:
            other = self.start(self.chance.choice([INGEST, COMMIT]))
            other.listen(SLEEP_S)
            if woken:
                sleeper.wake()
            else:
                sleeper.kill(group=False)
            sleeper.finish(RUN_S)
            other.finish(RUN_S)
        return f"{place}, {'woken' if woken else 'killed'} beside another"


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_a_million_events_come_in_once_whatever_is_killed(
    broker: Broker, launcher: Launcher, tmp_path: Path, tell: Tell, request: pytest.FixtureRequest
) -> None:
    kills = int(request.config.getoption("--kills", KILLS)) // PER_KILL
    chance = random.Random(5)
    spark = {"remote": NO_SPARK, "tasks": 2}
    world = HudiWorld(broker.bootstrap, tmp_path / "files", spark, random.Random(5), max_records=6_000)
    jobs = Deployment(world, launcher, tmp_path / "dagster", chance)
    jobs.home.mkdir()
    places: list[str] = []
    for number in range(kills):
        world.produce(EVENTS // kills)
        match number % 3:
            case 0:
                places.append(jobs.killed_at(PLACES[number // 3 % len(PLACES)]))
            case 1:
                places.append(jobs.killed_at_random())
            case _:
                places.append(jobs.asleep_beside_another(PLACES[number // 3 % len(PLACES)]))
        if number % 6 == 5 or number == kills - 1:
            took, difference = jobs.run_to_end(), world.difference()
            for place in places:
                tell(
                    Outcome.of(
                        "Hudi in Dagster: killed or asleep at", place.partition(".")[2] or place, difference, took
                    )
                )
            places.clear()
    assert len(world.events) >= EVENTS * 0.95
    done(launcher.warm, ["verify", world.file, "--deep"])
    events = sorted(world.events)
    for table_type in TYPES:
        folder = world.folder(table_type)
        assert world.stored(table_type) == sorted(set(world.stored(table_type)))
        assert hudi_spark.ids(folder) == events
        completed = [instant.completed for instant in read_timeline(Place(folder, folder)).commits]
        steps = completed[:: max(1, len(completed) // 5)] + completed[-1:]
        assert hudi_spark.incremental_ids(folder, steps) == events

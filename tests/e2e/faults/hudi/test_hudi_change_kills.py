"""Row changes of Hudi tables whose run is killed, or asleep with the lock: both have the last change of each key."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from tests import hudi_spark, hudi_tables, support
from tests.e2e.faults.conftest import KILLS, NO_SPARK
from tests.e2e.faults.hudi.test_hudi_kills import POINTS
from tests.e2e.faults.kills import RUN_S, done, waited_for
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.test_row_changes import PARTITIONS, UPSERT, Rows
from tests.e2e.faults.world import Difference
from tests.gate import only
from tests.pipelines import Flow

COW, MOR = "db.cow", "db.mor"
PER_KILL = 24
"""One in so many of the kills that are asked for is of a run that brings row changes into Hudi tables."""


@dataclass
class HudiRows(Rows):
    """Of a copy-on-write table, which hudi-rs reads, and of a merge-on-read table with files of changes."""

    seconds: list[float] = field(default_factory=list[float])

    def folder(self, name: str) -> Path:
        return hudi_tables.place(self.flow, name).folder

    def difference(self, found: list[tuple[int, str]] | None = None) -> Difference:
        """Of rows as they were `found`, else of the first table as hudi-rs has it."""
        rows = hudi_tables.rows(self.folder(COW)) if found is None else []
        seen = Counter(((row["id"], row["text"]) for row in rows) if found is None else found)
        wanted = set(self.wanted.items())
        twice = sum(n - 1 for n in seen.values())
        return Difference(
            lost=len(wanted - seen.keys()),
            twice=twice
            + sum(hudi_tables.twice(hudi_tables.place(self.flow, name), self.flow.name) for name in (COW, MOR)),
            foreign=len(seen.keys() - wanted),
        )

    def run_to_end(self, launcher: Launcher) -> float:
        began = time.monotonic()
        done(launcher.warm, self.run)
        self.seconds.append(time.monotonic() - began)
        return self.seconds[-1]

    def by_spark(self) -> Iterator[Difference]:
        """Of both tables, as a fresh session has them."""
        for rows in hudi_spark.rows(self.folder(COW), self.folder(MOR)):
            yield self.difference([(row["id"], row["text"]) for row in rows])


@pytest.fixture(scope="module")
def rows(broker: Broker, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Generator[HudiRows]:
    """A pipeline that has run; read by Spark, and proven, at the end."""
    settings = {**UPSERT, "key": ["id"], "format": "hudi"}
    topic = support.create_topic(broker.bootstrap, support.unique("changes"), PARTITIONS)
    flow = Flow.create(tmp_path_factory.mktemp("changes"), broker.bootstrap, topic, tables=(COW, MOR))
    tables = [{**settings, "name": COW}, {**settings, "name": MOR, "hudi": {"type": "merge_on_read"}}]
    flow = flow.but(
        spark={"remote": NO_SPARK, "tasks": 2},
        extra={"tables": tables, "hudi": {"warehouse": str(flow.files / "hudi")}, "batch": {"max_records": 200}},
    )
    made = HudiRows(flow)
    made.change()
    made.run_to_end(launcher)
    yield made
    assert [difference for difference in made.by_spark() if not difference.none] == []
    done(launcher.warm, ["verify", str(flow.pipeline.path), "--deep"])


@pytest.mark.parametrize("failpoint", only(["hudi.in-lock"], POINTS))
def test_a_run_that_is_killed_there_leaves_every_key_its_last_change(
    failpoint: str, launcher: Launcher, rows: HudiRows, tell: Tell
) -> None:
    rows.change()
    process = launcher.warm(rows.run, f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    rows.change()
    took = rows.run_to_end(launcher)
    tell(Outcome.of("row changes of Hudi: killed at", failpoint.partition(".")[2], rows.difference(), took))


@pytest.mark.faults
@pytest.mark.parametrize("woken", [True, False], ids=["woken", "killed"])
@pytest.mark.parametrize("failpoint", POINTS[:3])
def test_while_one_is_asleep_with_the_lock_others_wait(
    failpoint: str, woken: bool, launcher: Launcher, rows: HudiRows, tell: Tell
) -> None:
    rows.change()
    waited_for(launcher.warm, rows.run, failpoint, woken=woken, meanwhile=rows.change)
    took = rows.run_to_end(launcher)
    how = "asleep with the lock, woken" if woken else "asleep with the lock, killed"
    tell(Outcome.of(f"row changes of Hudi: {how}", failpoint.partition(".")[2], rows.difference(), took))


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_runs_that_are_killed_at_random_leave_every_key_its_last_change(
    launcher: Launcher, rows: HudiRows, tell: Tell, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(12)
    for _ in range(int(request.config.getoption("--kills", KILLS)) // PER_KILL):
        rows.change()
        process = launcher.warm(rows.run)
        process.listen(chance.uniform(0, rows.seconds[-1]))
        if process.exited(0) is not None:
            continue
        process.kill(group=chance.random() < 0.5)
        process.finish(RUN_S)
        if chance.random() < 0.5:
            continue
        took = rows.run_to_end(launcher)
        tell(Outcome.of("row changes of Hudi: killed at", "random", rows.difference(), took))
    rows.run_to_end(launcher)
    for difference in rows.by_spark():
        tell(Outcome.of("row changes of Hudi: after all of these", "random", difference, 0))

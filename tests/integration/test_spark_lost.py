"""An executor of Spark's dies in the middle of a task, or a warm Spark with its driver: each record is there once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from calve.sink_core.config.load import load
from calve.sink_core.timing import Deadline
from calve.spark_jobs import warm
from tests.gate import only
from tests.kinds import KINDS, Moved
from tests.launch import Running, printed, started
from tests.standalone import SETTINGS, Cluster, standalone

WITHIN_S = 120.0
STOPS_AT = {"sink": "task.after-files", "mirror": "transaction.after-event", "source": "transaction.after-event"}
"""In a task, once it has done what nobody may count twice."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.mark.parametrize("moved", only(["sink", "source"], of=KINDS), indirect=True)
def test_a_task_whose_executor_dies_is_done_again(moved: Moved, cluster: Cluster, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    environment = {"CALVE_FAILPOINT": f"{STOPS_AT[moved.kind]}=stop:{stopped}", "PYTHONPATH": os.pathsep.join(sys.path)}
    conf = {**SETTINGS, "spark.executor.memory": "512m"}
    conf |= {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    moved.on({"master": cluster.master, "conf": conf})
    run = started("run", moved.file, "--json")
    task = task_in(stopped, run)
    executor = next(p for p in task.parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))
    executor.kill()
    executor.wait(60)
    go_on(task)
    # A source's task that finds a former try leaves the rest to the next batch.
    [application] = {batch["written_by"]["application_id"] for batch in batches_of(run)}
    assert application.startswith("app-")
    moved.prove()


@pytest.mark.parametrize("moved", only(["mirror"], of=KINDS), indirect=True)
def test_a_run_whose_warm_spark_dies_goes_on_with_another(moved: Moved, tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    moved.on({"master": "local[2]", "driver_memory": "512MiB", "warm": str(folder)})
    stopped = tmp_path / "stopped"
    try:
        first = warm.start(folder, load(moved.file).spark)
        run = started("run", moved.file, "--json", CALVE_FAILPOINT=f"{STOPS_AT[moved.kind]}=stop:{stopped}")
        task = task_in(stopped, run)
        keeper = psutil.Process(first.process.pid)
        # With its driver, which would else end a moment later.
        dying = [keeper, *(child for child in keeper.children() if child.name() == "java")]
        assert len(dying) == 2
        for process in dying:
            process.kill()
        psutil.wait_procs(dying, timeout=60)
        go_on(task)
        [application] = {batch["written_by"]["application_id"] for batch in batches_of(run)}
        second = warm.running(folder)
        assert second is not None
        assert application == second.application_id != first.application_id
        assert second.runs == []
    finally:
        warm.stop(folder)
    moved.prove()


def batches_of(run: Running) -> list[dict[str, Any]]:
    """What a run says that ended well."""
    return json.loads(printed(run.done()))["batches"]


def task_in(stopped: Path, run: Running) -> psutil.Process:
    """The process of the task that has stopped."""
    deadline = Deadline.after(WITHIN_S)
    while not (stopped.is_file() and stopped.read_text()):
        assert run.process.is_alive(), run.done()
        assert not deadline.passed
        time.sleep(0.05)
    return psutil.Process(int(stopped.read_text()))


def go_on(task: psutil.Process) -> None:
    """Let the task go on that nobody waits for any more, if it still lives."""
    with suppress(psutil.NoSuchProcess):
        task.send_signal(signal.SIGCONT)

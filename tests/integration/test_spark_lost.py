"""An executor of Spark's dies in the middle of a task, or a warm Spark with its driver: each record is there once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load
from calve.sink_core.timing import Deadline
from calve.spark_jobs import warm
from tests import support
from tests.launch import Running, printed, started
from tests.source_flow import lines_of
from tests.standalone import SETTINGS, Cluster, standalone
from tests.support import TopicFactory
from tests.two_clusters import mirror_file

WITHIN_S = 120.0
RECORDS = 400
ON_SPARK = {"spark_from_records": 0, "min_task_bytes": "1KiB"}
STOPS_AT = {"sink": "task.after-files", "mirror": "transaction.after-event", "source": "transaction.after-event"}
"""In a task, once it has done what nobody may count twice."""


@dataclass(frozen=True)
class Moved:
    """A pipeline of one kind and the broker that it reads or writes."""

    file: Path
    broker: Broker
    topic: str
    kind: str

    def on(self, spark: dict[str, Any]) -> None:
        """Have it run there."""
        connections = self.file.with_name("connections.yaml")
        content = yaml.safe_load(connections.read_text())
        connections.write_text(yaml.safe_dump({**content, "spark": {"here": spark}}))
        document = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**document, "spark": "here", "batch": ON_SPARK}))

    def begin(self, stopped: Path) -> Running:
        """A run, of which one task stops once it has done its work."""
        return started("run", self.file, "--json", CALVE_FAILPOINT=f"{STOPS_AT[self.kind]}=stop:{stopped}")

    def found(self) -> list[str]:
        """What readers have."""
        if self.kind == "sink":
            with closing(support.open_catalog(self.file.parent / "lake")) as catalog:
                rows = catalog.load_table("db.lines").scan().to_arrow()
            return sorted(rows["text"].to_pylist())
        partitions = range(2)
        values = (v for p in partitions for v in support.consume(self.broker.bootstrap, self.topic, partition=p))
        return sorted((value or b"").decode() for value in values)


@pytest.fixture(params=["sink", "mirror", "source"])
def moved(
    request: pytest.FixtureRequest, broker: Broker, other_broker: Broker, kafka_topic: TopicFactory, tmp_path: Path
) -> Moved:
    """Two partitions, or two files, of which each is a task's."""
    kind = request.param
    if kind == "source":
        made = lines_of(broker, tmp_path, partitions=2)
        for name in ("a", "b"):
            made.write(name, *(f"{name}{number:04}" for number in range(RECORDS // 2)))
        return Moved(made.file, broker, made.topic, kind)
    topic = kafka_topic(2)
    for partition in (0, 1):
        lines = (f"{partition}{number:04}" for number in range(RECORDS // 2))
        values = (line.encode() if kind == "mirror" else json.dumps({"text": line}).encode() for line in lines)
        support.produce(broker.bootstrap, topic, values, partition=partition)
    if kind == "mirror":
        file = mirror_file(tmp_path, broker, other_broker, [topic])
        pipeline = load(file)
        return Moved(file, other_broker, pipeline.remote_of(topic), kind)  # pyright: ignore[reportAttributeAccessIssue]
    connections = {
        "deployment": "test",
        "kafka": {"main": {"bootstrap.servers": broker.bootstrap}},
        "catalog": {"lake": {"type": "sql", **support.catalog_properties(tmp_path / "lake")}},
    }
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(connections))
    document = {
        "name": support.unique("lost").replace("-", "_"),
        "source": {"kafka": "main", "topics": [topic]},
        "catalog": "lake",
        "tables": [{"name": "db.lines", "auto_create": {"columns": {"text": "string"}}}],
    }
    (file := tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document))
    return Moved(file, broker, topic, kind)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


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
    proven(moved)


def test_a_run_whose_warm_spark_dies_goes_on_with_another(moved: Moved, tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    moved.on({"master": "local[2]", "driver_memory": "512MiB", "warm": str(folder)})
    stopped = tmp_path / "stopped"
    try:
        first = warm.start(folder, load(moved.file).spark)
        run = moved.begin(stopped)
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
    proven(moved)


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


def proven(moved: Moved) -> None:
    """No record is lost and none is there twice, by Calve's proof and by a reader."""
    proof = started("verify", moved.file, "--deep", "--json").done()
    assert proof.returncode == 0, proof.stdout + proof.stderr
    found = moved.found()
    assert (len(found), len(set(found))) == (RECORDS, RECORDS)

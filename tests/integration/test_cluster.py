"""The same pipeline, run where Spark is not in this process: a standalone cluster of two workers, and Spark Connect."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pyspark
import pytest

from orchestration.broker import HOST, Broker, free_port
from sink_core.jars import spark_jars
from tests.pipelines import Flow
from tests.support import TopicFactory

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 120.0
Spawn = Callable[..., Path]


@pytest.fixture
def spawn(tmp_path: Path) -> Generator[Spawn]:
    """Start a main class of Spark's distribution: `spawn(name, class, *arguments)` → its log; all ended at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = tmp_path / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("wb") as out:
            spark_class = str(SPARK_HOME / "bin" / "spark-class")
            running.append(subprocess.Popen([spark_class, *command], env=environment, stdout=out, stderr=out))
        return log

    yield start
    for process in reversed(running):
        process.kill()
        process.wait()


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"batch": {"min_task_bytes": "1KiB"}})
    for partition in (0, 1):
        flow.produce(range(partition * 1000, partition * 1000 + 1000), partition=partition)
    return flow


def until(holds: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def calve_run(flow: Flow) -> None:
    """As a user runs it, in a process of its own: this one may have a Spark session already."""
    command = [str(Path(sys.executable).with_name("calve")), "run", str(flow.pipeline.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == "caught up"


def test_a_cluster_of_two_workers_gives_the_same_result(flow: Flow, spawn: Spawn, tmp_path: Path) -> None:
    port = free_port()
    master = f"spark://{HOST}:{port}"
    package = "org.apache.spark.deploy"
    log = spawn("master", f"{package}.master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
    until(lambda: listens(port), log)
    workers = [tmp_path / "worker-1", tmp_path / "worker-2"]
    for directory in workers:
        limits = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(directory)]
        spawn(directory.name, f"{package}.worker.Worker", "--host", HOST, *limits, master)
    until(lambda: log.read_text().count("Registering worker") == 2, log)
    local = {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST, "spark.executor.memory": "512m"}
    flow = flow.but(spark={"master": master, "conf": {**local, "spark.scheduler.minRegisteredResourcesRatio": "1.0"}})
    calve_run(flow)
    assert flow.ids() == list(range(2000))
    assert all(list(directory.glob("app-*/*/stderr")) for directory in workers)
    # Two tasks wrote: the number in a file's name is its task's.
    tasks = {path.name.split("-")[-6] for path in flow.lake.rglob("calve-*.parquet") if "events" in str(path)}
    assert tasks == {"0", "1"}


def test_spark_connect_gives_the_same_result(flow: Flow, spawn: Spawn) -> None:
    port = free_port()
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, spark_jars())),
    }
    confs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    log = spawn("connect", "org.apache.spark.deploy.SparkSubmit", "--class", server, *confs, "spark-internal")
    until(lambda: listens(port), log)
    flow = flow.but(spark={"remote": f"sc://{HOST}:{port}"})
    calve_run(flow)
    assert flow.ids() == list(range(2000))
    flow.produce(range(2000, 2010))
    calve_run(flow)
    assert flow.ids() == list(range(2010))

"""A Spark standalone cluster on this machine: a master and workers, each a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from orchestration.detached import HOST, free_port

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 120.0
_PACKAGE = "org.apache.spark.deploy"
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    # A run begins once all of them are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
"""What a driver on this machine needs."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The master's address, the workers' folders, which have what executors leave, and their processes."""

    master: str
    folders: tuple[Path, ...]
    master_pid: int
    worker_pids: tuple[int, ...]


@contextmanager
def standalone(directory: Path, workers: int, *, memory: str = "1g") -> Generator[Cluster]:
    """A cluster of workers with one core each, its files in `directory`; gone at the end with all it started."""
    directory.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> int:
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        }
        with (directory / f"{name}.log").open("wb") as out:
            spark_class = str(SPARK_HOME / "bin" / "spark-class")
            running.append(subprocess.Popen([spark_class, *command], env=environment, stdout=out, stderr=out))
        return running[-1].pid

    try:
        port, log = free_port(), directory / "master.log"
        master = f"spark://{HOST}:{port}"
        options = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        master_pid = start("master", f"{_PACKAGE}.master.Master", *options)
        _until(lambda: "New state: ALIVE" in log.read_text(), log)
        folders = tuple(directory / f"worker-{number}" for number in range(1, workers + 1))
        limits = ["--cores", "1", "--memory", memory, "--webui-port", "0"]
        pids = [
            start(folder.name, f"{_PACKAGE}.worker.Worker", "--host", HOST, *limits, "--work-dir", str(folder), master)
            for folder in folders
        ]
        _until(lambda: log.read_text().count("Registering worker") == workers, log)
        yield Cluster(master, folders, master_pid, tuple(pids))
    finally:
        _end(running)


def _until(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """With the executors, and what these started."""
    families = [child for process in running for child in psutil.Process(process.pid).children(recursive=True)]
    for process in reversed(running):
        process.kill()
        process.wait()
    for child in families:
        with suppress(psutil.NoSuchProcess):
            child.kill()

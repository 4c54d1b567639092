"""A Spark standalone cluster on this machine: a master and workers, each a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import psutil
import pyspark

from calve.sink_core.detached import HOST, free_port

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
def standalone(directory: Path, workers: int, *, memory: str = "1g", pinned: bool = False) -> Generator[Cluster]:
    """A cluster of workers with one core each, its files in `directory`; gone at the end with all it started.

    To Spark a core is a task at a time, whose threads run wherever there is room. With `pinned` each worker has one
    core of this machine, as a container of one core has, and no other.
    """
    directory.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str, core: int | None = None) -> int:
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        }
        with (directory / f"{name}.log").open("wb") as out:
            spark_class = str(SPARK_HOME / "bin" / "spark-class")
            on = [] if core is None else ["taskset", "--cpu-list", str(core)]
            running.append(subprocess.Popen([*on, spark_class, *command], env=environment, stdout=out, stderr=out))
        return running[-1].pid

    try:
        port, log = free_port(), directory / "master.log"
        master = f"spark://{HOST}:{port}"
        options = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        master_pid = start("master", f"{_PACKAGE}.master.Master", *options)
        _until(lambda: "New state: ALIVE" in log.read_text(), log)
        folders = tuple(directory / f"worker-{number}" for number in range(1, workers + 1))
        limits = ["--cores", "1", "--memory", memory, "--webui-port", "0"]
        cores = cycle(sorted(os.sched_getaffinity(0)) if pinned else [None])
        worker = (f"{_PACKAGE}.worker.Worker", "--host", HOST, *limits, "--work-dir")
        pids = [
            start(folder.name, *worker, str(folder), master, core=core)
            for folder, core in zip(folders, cores, strict=False)
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

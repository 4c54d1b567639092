"""A Spark Connect server in a process of its own, which outlives the runs that are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from calve.sink_core.detached import free_port
from calve.sink_core.jars import spark_jars
from calve.spark_jobs import daemon
from tests.e2e.faults.processes import ROOT

START_S = 300.0


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """Its address for `remote`, and its process."""

    address: str
    pid: int

    def drop_daemons(self) -> None:
        """End the Python daemons of former sessions: Spark keeps one for each, and a series has hundreds."""
        for process in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if daemon.__name__ in process.cmdline():
                    process.kill()


@contextmanager
def serving(directory: Path, own: Mapping[str, str] | None = None) -> Generator[ConnectServer]:
    """A server whose files are in `directory`, gone at the end with all it started; `own` are settings on top."""
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.jars": ",".join(map(str, spark_jars())),
        "spark.python.daemon.module": daemon.__name__,
        **(own or {}),
    }
    command = [str(submit), *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}"))]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with (directory / "server.log").open("wb") as log:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=directory, env=environment, start_new_session=True
        )
    try:
        _await_port(port, server, directory / "server.log")
        yield ConnectServer(f"sc://127.0.0.1:{port}", server.pid)
    finally:
        family = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _await_port(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"the Spark Connect server did not start:\n{log.read_text()[-4000:]}")

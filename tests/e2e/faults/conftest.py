"""Fixtures of the fault tests: a Spark Connect server, a launcher of `calve` processes, pipelines with known data."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from orchestration.broker import Broker, free_port
from sink_core.jars import spark_jars
from spark_jobs import daemon
from tests.e2e.faults.outcomes import Tell, table, telling, told
from tests.e2e.faults.processes import ROOT, Launcher
from tests.e2e.faults.world import World

START_S = 300.0
NO_SPARK = "sc://127.0.0.1:1"
KILLS = 720

NewWorld = Callable[..., World]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS, help="Swift runs killed in the long series")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What became of every process that was killed or asleep, in one table."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    outcomes = [outcome for r in reports if r.when == "call" for outcome in told(r.user_properties)]
    if outcomes:
        terminalreporter.section("faults")
        terminalreporter.write_line(table(outcomes))


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server that outlives the runs that are killed."""

    address: str
    pid: int

    def drop_daemons(self) -> None:
        """End the Python daemons of former sessions: Spark keeps one for each, and a series has hundreds."""
        for process in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if daemon.__name__ in process.cmdline():
                    process.kill()


@dataclass
class Spark:
    """The Spark Connect server that all warm runs share, started by the first world that needs it."""

    directory: Path
    opened: ExitStack
    _server: ConnectServer | None = None

    def server(self) -> ConnectServer:
        if self._server is None:
            self._server = self.opened.enter_context(_connect_server(self.directory))
        return self._server

    def drop_daemons(self) -> None:
        if self._server is not None:
            self._server.drop_daemons()


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Spark]:
    with ExitStack() as opened:
        yield Spark(tmp_path_factory.mktemp("connect"), opened)


@contextmanager
def _connect_server(directory: Path) -> Generator[ConnectServer]:
    port = free_port()
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


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Note what became of a process; fails if anything is lost or twice."""
    return telling(record_property)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("stderr"))


@pytest.fixture(scope="session")
def new_world(broker: Broker, spark_server: Spark, tmp_path_factory: pytest.TempPathFactory) -> NewWorld:
    """Make a pipeline: `new_world(seed, on_spark=False, max_records=150)`. Without Spark only swift runs work."""

    def make(seed: int, *, on_spark: bool = False, **options: Any) -> World:
        spark_server.drop_daemons()
        spark = {"remote": spark_server.server().address if on_spark else NO_SPARK, "tasks": 2}
        directory = tmp_path_factory.mktemp("world") / "files"
        return World(broker.bootstrap, directory, spark, random.Random(seed), **options)

    return make


@pytest.fixture(autouse=True)
def no_daemons_pile_up(spark_server: Spark) -> Generator[None]:
    """Between tests nothing runs on the server."""
    yield
    spark_server.drop_daemons()

"""Fixtures of the fault tests: a Spark Connect server, a launcher of `calve` processes, pipelines with known data."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestration.broker import Broker
from tests.e2e.faults.outcomes import Tell, table, telling, told
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.spark_server import ConnectServer, serving
from tests.e2e.faults.world import World

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


@dataclass
class Spark:
    """The Spark Connect server that all warm runs share, started by the first world that needs it."""

    directory: Path
    opened: ExitStack
    _server: ConnectServer | None = None

    def server(self) -> ConnectServer:
        if self._server is None:
            self._server = self.opened.enter_context(serving(self.directory))
        return self._server

    def drop_daemons(self) -> None:
        if self._server is not None:
            self._server.drop_daemons()


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Spark]:
    with ExitStack() as opened:
        yield Spark(tmp_path_factory.mktemp("connect"), opened)


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

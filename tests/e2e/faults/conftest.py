"""Fixtures of the fault tests: a Spark Connect server, a launcher of `calve` processes, pipelines with known data."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest

from orchestration.broker import Broker
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.spark_server import ConnectServer, serving
from tests.e2e.faults.world import World

NewWorld = Callable[..., World]


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ConnectServer]:
    """The server that all warm runs share."""
    with serving(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("stderr"))


@pytest.fixture(scope="session")
def new_world(broker: Broker, connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> NewWorld:
    """Make a pipeline: `new_world(seed, max_records=150)`; its runs share the warm Spark Connect server."""

    def make(seed: int, **options: Any) -> World:
        connect_server.drop_daemons()
        spark = {"remote": connect_server.address, "tasks": 2}
        directory = tmp_path_factory.mktemp("world") / "files"
        return World(broker.bootstrap, directory, spark, random.Random(seed), **options)

    return make


@pytest.fixture(autouse=True)
def no_daemons_pile_up(connect_server: ConnectServer) -> Generator[None]:
    """Between tests nothing runs on the server."""
    yield
    connect_server.drop_daemons()

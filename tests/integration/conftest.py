"""Fixtures of the tests that need parts of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from calve.orchestration.local import broker as embedded
from calve.sink_core import compiled
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs.engine import SparkEngine
from tests import support
from tests.mirror_flow import MirrorFlow
from tests.rest_catalog import RestCatalog
from tests.schema_registry import SchemaRegistry

StartBroker = Callable[..., embedded.Broker]
NewMirror = Callable[..., MirrorFlow]


@pytest.fixture
def start_broker(tmp_path: Path) -> Generator[StartBroker]:
    """Start a broker of this test's own: `start_broker(name="own", **options of broker.start)`; stopped at the end."""
    directories: set[Path] = set()

    def start(name: str = "own", **options: object) -> embedded.Broker:
        directories.add(tmp_path / name)
        with support.short_lived():
            return embedded.start(tmp_path / name, heap_mb=512, **options)  # pyright: ignore[reportArgumentType]

    yield start
    for directory in directories:
        embedded.stop(directory)


@pytest.fixture
def new_mirror(tmp_path: Path, broker: embedded.Broker, other_broker: embedded.Broker) -> NewMirror:
    """A mirror of this test's own from `broker` to `other_broker`: `new_mirror(*topics, **fields of MirrorFlow)`."""
    return partial(MirrorFlow.create, tmp_path, broker.bootstrap, other_broker.bootstrap)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Generator[SchemaRegistry]:
    server = SchemaRegistry(tmp_path_factory.mktemp("registry"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestCatalog]:
    """A REST catalog of this file's own; tests have namespaces of their own in it."""
    server = RestCatalog(tmp_path_factory.mktemp("rest"), "lake_rest")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[SparkEngine]:
    """On the session that tests share."""
    with SparkEngine(SparkSettings(master="local[2]")) as found:
        yield found


@pytest.fixture
def instance(tmp_path: Path) -> Generator[DagsterInstance]:
    """A Dagster instance of this test's own."""
    (home := tmp_path / "dagster").mkdir()
    with DagsterInstance.local_temp(str(home), {"telemetry": {"enabled": False}}) as opened:
        yield opened


@pytest.fixture(params=["objects", "columns"])
def each_delivery(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what is read in this process read by one client and then, in another test, by the other."""
    by_kernels = request.param == "columns"
    monkeypatch.setattr(compiled, "usable", lambda *_: by_kernels)

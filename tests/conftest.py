"""Fixtures for every test. What they start is real, made on first use and gone at the end of the session."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from calve.orchestration.local import broker as embedded
from calve.sink_core import hidden
from tests import support
from tests.kinds import KINDS, Moved, of_kind
from tests.support import is_worker, shared_directory

if TYPE_CHECKING:
    from tests.guarded import GuardedBroker

pytest_plugins = ["tests.durations", "tests.groups", "tests.hudi_jvms", "tests.slices", "tests.warm_spark"]

# No test is about time: on a machine that is busy elsewhere an example may take any.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    # Of the long series, whose second part lies beside its folder: it is given the same options.
    parser.addoption("--kills", type=int, default=720, help="Swift runs killed in the long series")
    parser.addoption("--seconds", type=float, default=300.0, help="For which parts of Dagster's deployment are killed")
    parser.addoption("--seed", type=int, default=1, help="Of what is killed then, and when")
    parser.addoption("--simulate", type=float, help="seconds of simulation, not until it has been everywhere")


@pytest.fixture(scope="session")
def simulation_s(request: pytest.FixtureRequest) -> float | None:
    """Seconds of histories, if so many are wanted; else these end when they have been everywhere often enough."""
    return request.config.getoption("simulate")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> embedded.Broker:
    """One Kafka broker for the whole run, shared by its workers; its `.bootstrap` is its address.

    Tests meet others' topics and groups on it: their own have names that nobody else uses.
    """
    # A machine that is busy with all else is not to take it for dead.
    patient = {"broker.session.timeout.ms": "60000"}
    with support.short_lived():
        return embedded.start(shared_directory(request.config) / "broker", properties=patient)


@pytest.fixture(scope="session")
def other_broker(request: pytest.FixtureRequest) -> embedded.Broker:
    """As `broker`, another cluster."""
    patient = {"broker.session.timeout.ms": "60000"}
    with support.short_lived():
        return embedded.start(shared_directory(request.config) / "other-broker", properties=patient, heap_mb=512)


@pytest.fixture(scope="session")
def guarded_broker(request: pytest.FixtureRequest) -> GuardedBroker:
    """As `broker`, one that demands TLS and a password and grants nothing unless told to."""
    from tests.guarded import GuardedBroker

    return GuardedBroker.started(shared_directory(request.config) / "guarded-broker")


@pytest.fixture(scope="session")
def other_guarded_broker(request: pytest.FixtureRequest) -> GuardedBroker:
    """A second one, with a certificate of its own: the other cluster of a mirror."""
    from tests.guarded import GuardedBroker

    directory = shared_directory(request.config) / "other-guarded-broker"
    directory.mkdir(exist_ok=True)
    return GuardedBroker.started(directory)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whoever started the workers stops the brokers, when they are done."""
    if not is_worker(session.config):
        for name in ("broker", "other-broker", "guarded-broker", "other-guarded-broker"):
            embedded.stop(shared_directory(session.config) / name)


@pytest.fixture(autouse=True)
def no_secrets_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process never shows what it was told to keep secret; of tests many share one."""
    monkeypatch.setattr(hidden, "_kept", dict[str, object]())


@pytest.fixture(scope="module", autouse=True)
def collected() -> Generator[None]:
    """A process has room for a thousand Kafka clients, and Python looks for cycles rarely where there is much else."""
    yield
    gc.collect()


@pytest.fixture
def kafka_topic(broker: embedded.Broker) -> support.TopicFactory:
    """Create a topic nobody else uses: `kafka_topic(partitions=1, config=None, prefix="topic")` → its name."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None, prefix: str = "topic") -> str:
        return support.create_topic(broker.bootstrap, support.unique(prefix), partitions, config)

    return create


@pytest.fixture
def produce(broker: embedded.Broker) -> support.Produce:
    """Append to a topic: `produce(topic, values, partition=0, keys=None, timestamps=None)` → number of records."""
    return partial(support.produce, broker.bootstrap)


@pytest.fixture
def catalog_dir(tmp_path: Path) -> Path:
    """The folder of this test's own catalog and warehouse."""
    return tmp_path / "lake"


@pytest.fixture
def catalog(catalog_dir: Path) -> Generator[SqlCatalog]:
    """This test's own Iceberg catalog, named `lake`."""
    opened = support.open_catalog(catalog_dir)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def lake_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the catalog that pyiceberg (`lake`) and Spark (`spark`) share for the session."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def lake(lake_dir: Path) -> Generator[SqlCatalog]:
    """The session's Iceberg catalog, seen by Spark as `lake`; tests use namespaces of their own in it."""
    opened = support.open_catalog(lake_dir)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, lake: SqlCatalog, lake_dir: Path) -> Generator[SparkSession]:
    """A `local[2]` Spark session with the session's catalog as `lake`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = support.start_spark(tmp_path_factory.mktemp("spark"), lake_dir)
    yield session
    session.stop()


@pytest.fixture(params=KINDS)
def moved(
    request: pytest.FixtureRequest,
    broker: embedded.Broker,
    other_broker: embedded.Broker,
    kafka_topic: support.TopicFactory,
    tmp_path: Path,
) -> Moved:
    """The pipeline of `tests.kinds`, of each kind."""
    return of_kind(request.param, broker, other_broker, kafka_topic, tmp_path)

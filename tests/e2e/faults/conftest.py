"""Fixtures of the fault tests: a launcher of `calve` processes, pipelines with known data."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from tests.e2e.faults.outcomes import Tell, table, telling, told
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.world import World
from tests.warm_spark import WarmSpark

NO_SPARK = "sc://127.0.0.1:1"
KILLS = 720

NewWorld = Callable[..., World]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What became of every process that was killed or asleep, in one table."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    outcomes = [outcome for r in reports if r.when == "call" for outcome in told(r.user_properties)]
    if outcomes:
        terminalreporter.section("faults")
        terminalreporter.write_line(table(outcomes))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Note what became of a process; fails if anything is lost or twice."""
    return telling(record_property)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("stderr"))


@pytest.fixture(scope="session")
def new_world(broker: Broker, warm_spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory) -> NewWorld:
    """Make a pipeline: `new_world(seed, on_spark=False, max_records=150)`. Without Spark batches stay small."""

    def make(seed: int, *, on_spark: bool = False, **options: Any) -> World:
        spark = (warm_spark.settings if on_spark else {"remote": NO_SPARK}) | {"tasks": 2}
        directory = tmp_path_factory.mktemp("world") / "files"
        return World(broker.bootstrap, directory, spark, random.Random(seed), **options)

    return make

"""kill -9 and SIGSTOP of a source's driver and slots while pgbench writes: each row version is in Kafka once."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from tests.e2e.faults.conftest import KILLS
from tests.e2e.faults.outcomes import Tell
from tests.e2e.faults.slots.series import Series
from tests.e2e.faults.source.world import SourceWorld
from tests.gate import every_second
from tests.postgres import Postgres, postgres

POINTS = ("source.after-offsets", "source.before-acknowledge")
WAYS = {"log": {}, "window": {"tables_by": "transaction", "value": {"shape": "row"}}}
PER_KILL = 3
"""One in so many of the kills that are asked for is of each way to read."""


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills", KILLS)) // PER_KILL


def series(way: str, server: Postgres, broker: Broker, directory: Path, per_round: int, seed: int) -> Series:
    world = SourceWorld.create(server, broker.bootstrap, directory, seed, **WAYS[way])
    world.run_to_end(1)
    return Series(world, seed, per_round, f"source by {way}", POINTS, by_driver=way == "log")


@pytest.mark.parametrize("way", every_second(WAYS))
def test_five_kills_lose_and_double_no_row_version(
    way: str, server: Postgres, broker: Broker, tmp_path: Path, tell: Tell
) -> None:
    for outcome in series(way, server, broker, tmp_path, 200, 5).run(5):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", WAYS)
def test_a_long_series_of_kills_loses_and_doubles_no_row_version(
    way: str, server: Postgres, broker: Broker, tmp_path: Path, tell: Tell, kills: int
) -> None:
    for outcome in series(way, server, broker, tmp_path, 600, 6).run(kills):
        tell(outcome)

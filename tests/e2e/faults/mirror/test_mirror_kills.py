"""kill -9 and SIGSTOP of a mirror's driver and slots, and of its target: every record is copied once, in order."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calve.orchestration.local import broker as embedded
from calve.orchestration.local.broker import Broker
from tests import support
from tests.e2e.faults.conftest import KILLS
from tests.e2e.faults.mirror.world import MirrorWorld
from tests.e2e.faults.outcomes import Tell
from tests.e2e.faults.slots.series import Series

RECORDS = 2_000_000
"""Of the long series as it is asked for by default."""

PER_KILL = 3
"""One in so many of the kills that are asked for is of a mirror."""


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills", KILLS)) // PER_KILL


@pytest.fixture
def own_target(tmp_path: Path) -> Iterator[Path]:
    """The folder of a broker that may be killed."""
    directory = tmp_path / "target"
    with support.short_lived():
        embedded.start(directory, port=support.steady_port(), heap_mb=512)
    yield directory
    embedded.stop(directory)


def restarting(directory: Path) -> Callable[[], None]:
    def restart() -> None:
        broker = embedded.status(directory)
        assert broker is not None
        os.kill(broker.pid, signal.SIGKILL)
        time.sleep(1.0)
        with support.short_lived():
            embedded.start(directory, heap_mb=512, timeout=120)

    return restart


def test_five_kills_lose_and_double_nothing(broker: Broker, other_broker: Broker, tmp_path: Path, tell: Tell) -> None:
    world = MirrorWorld(tmp_path, broker.bootstrap, other_broker.bootstrap, random.Random(1))
    for outcome in Series(world, 1, per_round=2_000).run(5):
        tell(outcome)


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_a_long_series_of_kills_loses_and_doubles_nothing(
    broker: Broker, own_target: Path, tmp_path: Path, tell: Tell, kills: int
) -> None:
    running = embedded.status(own_target)
    assert running is not None
    world = MirrorWorld(tmp_path, broker.bootstrap, running.bootstrap, random.Random(2))
    # Three productions for two kills, of three quarters of the number each.
    per_round = RECORDS // KILLS * PER_KILL
    for outcome in Series(world, 2, per_round, restart=restarting(own_target)).run(kills):
        tell(outcome)
    # All of it once more, from the beginning.
    world.read_from_the_beginning()
    assert world.difference().none
    print(f"{world.records:,} records, {kills} kills")  # noqa: T201 - what the table does not say

"""kill -9 of `calve run` at seeded moments: every event is in the tables once after the next run."""

from __future__ import annotations

import pytest

from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import Kill, Series, table
from tests.e2e.faults.processes import Launcher


def check(series: Series, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[Kill] = []
    try:
        for kill in series.run(kills):
            done.append(kill)
            assert kill.difference.none, kill
    finally:
        with capsys.disabled():
            print(f"\nseed {series.seed}\n{table(done)}")  # noqa: T201 - the result of the series
    assert len(done) == kills


@pytest.mark.timeout(900)
def test_twenty_kills_lose_and_double_nothing(
    launcher: Launcher, new_world: NewWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    check(Series(20, launcher, new_world), 20, capsys)


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_two_hundred_kills_lose_and_double_nothing(
    launcher: Launcher, new_world: NewWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    check(Series(200, launcher, new_world), 200, capsys)

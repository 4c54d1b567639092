"""The demo of Hudi tables as its reader sees it: run twice in an empty folder, with fewer flights."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local import broker
from examples.flights import produce
from tests import launch, support

ROOT = Path(__file__).parents[2]
FLIGHTS = 40_000


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, str]]:
    """What the demo printed in its first and in its second run."""
    folder = tmp_path_factory.mktemp("demo-hudi")
    try:
        with support.short_lived():
            yield _printed(folder), _printed(folder)
    finally:
        broker.stop(folder / "broker")


def _printed(folder: Path) -> str:
    return launch.printed(launch.demo(folder, "-m", "examples.hudi.demo", "--limit", str(FLIGHTS)))


def test_a_run_is_killed_and_readers_find_what_kafka_has(printed: tuple[str, str]) -> None:
    first, second = printed
    assert f"{FLIGHTS + len(produce.BROKEN):,} events produced, {len(produce.BROKEN)} of them broken" in first
    assert "killed. Another run completes what is published" in first
    assert "the topic is filled already" in second
    for each in printed:
        assert "\nproven\n" in each
        assert f"equal: {FLIGHTS:,} flights in both tables, and the last one of each of" in each

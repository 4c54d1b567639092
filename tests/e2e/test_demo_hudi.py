"""The demo of Hudi tables as its reader sees it: run twice in an empty folder, with fewer flights."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local import broker
from examples.flights import produce
from tests import launch, support
from tests.spark_events import noted_in, written_on_spark

ROOT = Path(__file__).parents[2]

# Of the demos that of flights is in `make test-all`.
pytestmark = pytest.mark.faults
FLIGHTS = 40_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, str, str]]:
    """The folder, and what the demo printed in its first and in its second run."""
    folder = tmp_path_factory.mktemp("demo-hudi")
    try:
        with support.short_lived():
            yield folder, _printed(folder, **noted_in(folder / "spark-history")), _printed(folder)
    finally:
        broker.stop(folder / "broker")


def _printed(folder: Path, **environment: str) -> str:
    command = ("-m", "examples.hudi.demo", "--limit", str(FLIGHTS))
    return launch.printed(launch.demo(folder, *command, **environment))


def test_tasks_of_spark_have_written_the_rows(demo: tuple[Path, str, str]) -> None:
    folder, first, _ = demo
    assert written_on_spark(folder / "spark-history", first, "calve.demo.planes") > 1


def test_a_run_is_killed_and_readers_find_what_kafka_has(demo: tuple[Path, str, str]) -> None:
    _, first, second = demo
    assert f"{FLIGHTS + len(produce.BROKEN):,} events produced, {len(produce.BROKEN)} of them broken" in first
    assert "killed. Another run completes what is published" in first
    assert "the topic is filled already" in second
    for each in (first, second):
        assert "\nproven\n" in each
        assert f"equal: {FLIGHTS:,} flights in both tables, and the last one of each of" in each

"""The demo of a mirror as its reader sees it: run twice in an empty folder, with fewer records."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local import broker
from examples.mirror import compare, produce
from tests import launch, support
from tests.spark_events import noted_in, written_on_spark

ROOT = Path(__file__).parents[2]

# Of the demos that of flights is in `make test-all`.
pytestmark = pytest.mark.faults
RECORDS = 60_000
COMMITTED = RECORDS * 4 // 5
"""Every fifth transaction is aborted."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, str, str]]:
    """The folder, and what the demo printed in its first and in its second run."""
    folder = tmp_path_factory.mktemp("demo-mirror")
    try:
        with support.short_lived():
            printed = _printed(folder, **noted_in(folder / "spark-history")), _printed(folder)
        yield folder, *printed
    finally:
        for cluster in ("eu", "us"):
            broker.stop(folder / cluster)


def _printed(folder: Path, **environment: str) -> str:
    command = ("-m", "examples.mirror.demo", "--records", str(RECORDS))
    return launch.printed(launch.demo(folder, *command, **environment))


def test_slots_run_on_spark(demo: tuple[Path, str, str]) -> None:
    folder, first, _ = demo
    assert written_on_spark(folder / "spark-history", first, "calve.demo.eu_to_us") > 1


def test_it_kills_a_run_of_which_one_transaction_is_seen(demo: tuple[Path, str, str]) -> None:
    _, first, second = demo
    assert f"{COMMITTED:,} records produced, and {RECORDS - COMMITTED:,} in transactions that were aborted" in first
    for printed, before in ((first, COMMITTED), (second, COMMITTED + COMMITTED // 2)):
        seen, of = (int(n.replace(",", "")) for n in re.findall(r"sees ([\d,]+) of ([\d,]+) records", printed)[0])
        assert before < seen < of == before + COMMITTED // 2


def test_both_clusters_have_the_same(demo: tuple[Path, str, str]) -> None:
    folder, first, second = demo
    assert f"proven: {COMMITTED + COMMITTED // 2:,} records in 6 partitions" in first
    assert f"proven: {2 * COMMITTED:,} records in 7 partitions" in second
    assert broker.status(folder / "eu") is broker.status(folder / "us") is None
    with support.short_lived():
        eu, us = (broker.start(folder / cluster, heap_mb=384).bootstrap for cluster in ("eu", "us"))
    pairs = compare.compare(eu, us, produce.TOPICS, "eu")
    assert sum(pair.source.records for pair in pairs) == 2 * COMMITTED
    assert all(pair.equal for pair in pairs)
    config = support.topic_config(us, "eu.shop.customers")
    assert {key: config[key] for key in produce.CONFIG} == produce.CONFIG


def test_what_is_not_equal_is_said() -> None:
    content = compare.Content(1, 2, "a" * 64)
    assert compare.Pair("t", 0, content, compare.Content(1, 3, "a" * 64)).equal
    assert not compare.Pair("t", 0, content, compare.Content(1, 2, "b" * 64)).equal
    assert not compare.Pair("t", 0, content, None).equal

"""A million records of seven formats in twenty topics, 2 % of them bad, and five runs killed on the way."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from tests.e2e.faults.outcomes import Outcome, Tell
from tests.e2e.faults.world import Difference
from tests.e2e.routed import Routed, with_registry, without_registry
from tests.schema_registry import SchemaRegistry

RECORDS = 1_000_000
KILLS = (
    "write.after-files@2",
    "publish.after-events@2",
    "publish.after-commit@2",
    "commit.after-swap@3",
    "commit.before-complete@2",
)


@pytest.fixture
def registry(tmp_path: Path) -> Generator[SchemaRegistry]:
    server = SchemaRegistry(tmp_path / "registry")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_million_records_of_many_formats_are_where_their_rules_say(
    tmp_path: Path, broker: Broker, registry: SchemaRegistry, tell: Tell
) -> None:
    formats = [*without_registry(tmp_path), *with_registry(registry)]
    routed = Routed.make(tmp_path, broker.bootstrap, formats, RECORDS, max_records=120_000, url=registry.url)
    for place in KILLS:
        assert routed.run(killed_at=place) == -9
    began = time.monotonic()
    assert routed.run() == 0
    took_s = time.monotonic() - began
    facts = routed.check()
    assert (facts["records"], facts["dead lettered"]) == (RECORDS, RECORDS // 50)
    for place in KILLS:
        step = place.partition(".")[0]
        tell(Outcome.of("a million records of mixed formats: killed in", step, Difference(), took_s))

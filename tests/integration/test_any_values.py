"""Any values of any types in every format: what a table has, as Spark and ClickHouse read it, is what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orchestration.broker import Broker
from spark_jobs.runner import SparkRunner
from tests.any_values.rounds import Found, a_round
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry
from tests.support import TopicFactory

FORMATS = 5
OF_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.mark.parametrize(
    ("rounds", "records"), [(1, 600), pytest.param(20, 10_000, marks=[pytest.mark.faults, pytest.mark.timeout(7200)])]
)
def test_what_can_be_stored_is_and_what_cannot_is_a_dead_letter(
    rounds: int,
    records: int,
    tmp_path: Path,
    broker: Broker,
    kafka_topic: TopicFactory,
    registry: SchemaRegistry,
    spark: SparkSession,
    runner: SparkRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # ClickHouse reads files below the working directory only.
    monkeypatch.chdir(Path("/"))
    found = Found()
    for seed in range(rounds):
        topics = [kafka_topic(1, config=OF_ANY_TIME) for _ in range(FORMATS)]
        flow = Flow.create(tmp_path, broker.bootstrap, *topics)
        a_round(flow, registry, spark, runner, seed=seed, records=records, found=found)
        print(f"seed {seed}: {found.table()}", flush=True)  # noqa: T201 - the table of `make faults`
        assert found.wrong[:20] == []

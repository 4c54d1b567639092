"""Any values of any types in every format: what a table has, as Spark and ClickHouse read it, is what was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.spark_jobs.engine import SparkEngine
from tests.any_values import names, values
from tests.any_values.values import Found, Parts
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry
from tests.support import TopicFactory

FORMATS = 5
OF_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}


@pytest.fixture
def parts(registry: SchemaRegistry, spark: SparkSession, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> Parts:
    # ClickHouse reads files below the working directory only.
    monkeypatch.chdir(Path("/"))
    return Parts(registry, spark, engine)


@pytest.fixture
def new_flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Callable[[], Flow]:
    """Makes a pipeline with a topic for each format."""

    def make() -> Flow:
        topics = [kafka_topic(1, config=OF_ANY_TIME) for _ in range(FORMATS)]
        return Flow.create(tmp_path, broker.bootstrap, *topics)

    return make


@pytest.mark.parametrize(
    ("seeds", "records"),
    [
        pytest.param(range(1), 150, id="share"),
        pytest.param(range(1, 21), 10_000, id="million", marks=[pytest.mark.faults, pytest.mark.timeout(7200)]),
    ],
)
def test_what_can_be_stored_is_and_what_cannot_is_a_dead_letter(
    seeds: range,
    records: int,
    new_flow: Callable[[], Flow],
    parts: Parts,
) -> None:
    found = Found()
    for seed in seeds:
        values.a_round(new_flow(), parts, seed=seed, records=records, found=found)
        print(f"seed {seed}: {found.table()}", flush=True)  # noqa: T201 - the table of `make faults`
        assert found.wrong[:20] == []


@pytest.mark.parametrize(
    ("seeds", "modes"),
    [
        pytest.param(range(1), ["append"], id="share"),
        pytest.param(
            range(1, 31), list(values.MODES), id="many", marks=[pytest.mark.faults, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_a_field_of_any_name_is_a_column_or_one_that_no_reader_could_read(
    seeds: range,
    modes: list[str],
    new_flow: Callable[[], Flow],
    parts: Parts,
) -> None:
    for seed in seeds:
        wrong = names.a_round(new_flow(), parts, seed=seed, records=40, modes=modes)
        assert wrong[:20] == [], f"seed {seed}"

"""A SQL catalog on a PostgreSQL that wants a password: what pyiceberg and Spark's JDBC catalog both work with."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.maintenance.tasks import run_task
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.procedures import SparkProcedures
from tests.pipelines import Flow
from tests.postgres import DATABASE, USER, postgres
from tests.support import TopicFactory

PASSWORD = "p@ss/w:rd"
IN_AN_ADDRESS = "p%40ss%2Fw%3Ard"
EVENTS, LATEST = "db.events", "db.latest"


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Generator[Flow]:
    columns = {"auto_create": {"columns": {"id": "long", "text": "string"}}}
    merged = {"name": LATEST, "mode": "upsert", "key": ["id"], "write_mode": "merge"}
    extra = {
        "tables": [{"name": EVENTS, **columns}, {**merged, **columns}],
        "maintenance": {"compact": {"lag": "0s", "min_files": 2}},
    }
    with postgres(PASSWORD) as server:
        uri = f"postgresql+psycopg2://{USER}:{IN_AN_ADDRESS}@127.0.0.1:{server.port}/{DATABASE}"
        yield Flow.create(
            tmp_path,
            broker.bootstrap,
            kafka_topic(1),
            lake_properties={"uri": uri},
            tables=(EVENTS, LATEST),
            extra=extra,
        )


def test_spark_merges_and_compacts_where_pyiceberg_commits(
    flow: Flow, spark: SparkSession, engine: SparkEngine
) -> None:
    def by_spark(table: str) -> list[int]:
        """The pipeline's runs have made the catalog known to the session."""
        return sorted(row["id"] for row in spark.table(f"{flow.catalog}.{table}").collect())

    for first in (0, 5, 3):
        flow.produce(range(first, first + 5))
        assert flow.run(engine).commits[-1].failed == {}
    assert by_spark(LATEST) == list(range(10))
    with flow.session() as session:
        done = run_task("compact", session, SparkProcedures(lambda: spark, flow.pipeline.catalog))
        assert verify(session, deep=True).violations == ()
    assert done.failed == {}
    assert EVENTS in {outcome.subject for outcome in done.done if outcome.changed}
    assert by_spark(EVENTS) == sorted([*range(10), *range(3, 8)])

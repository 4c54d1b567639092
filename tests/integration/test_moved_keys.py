"""A key that shows up in another source partition than its row came from; and what is read of the table to find it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.batches import Ingest
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_spark
from tests.codes import raises
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

PARTITIONS = 2


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(PARTITIONS))


def keyed_by(flow: Flow, kind: str, **settings: str) -> Flow:
    table = {"name": "db.events", "mode": "upsert", "key": ["id"], **settings}
    return flow.but(extra={"tables": [{**table, "auto_create": {"columns": {"id": kind, "v": "long"}}}]})


def rows(flow: Flow, spark: SparkSession) -> dict[object, int]:
    return {row["id"]: row["v"] for row in by_spark(spark, f"{flow.attached(spark)}.{flow.table}")}


def values(keys: Sequence[object], v: int) -> list[str]:
    return [json.dumps({"id": key, "v": v}) for key in keys]


def test_a_key_in_another_partition_than_its_row_came_from_stops_before_anything_is_published(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = keyed_by(flow, "uuid")
    moving, *others = [str(UUID(int=number)) for number in range(1, 4)]
    flow.run(engine)
    produce(flow.topic, values([moving, *others], 1))
    # It waits for its commit.
    with flow.session(engine) as session:
        ingest = Ingest(session)
        ingest.bind()
        ingest.prepare()
        assert ingest.next_batch()
    produce(flow.topic, values(others, 2))
    produce(flow.topic, values([moving], 3), partition=1)
    topic = flow.topic
    with raises(Code.KEY_MOVED, f"{topic}[1]", f"{topic}[0]"):
        flow.run(engine)
    assert rows(flow, spark) == {moving: 1, **dict.fromkeys(others, 1)}
    keyed_by(flow, "uuid", on_moved_key="ignore").run(engine)
    assert rows(flow, spark) == {moving: 3, **dict.fromkeys(others, 2)}
    # From there it may come again.
    produce(flow.topic, values([moving], 4), partition=1)
    flow.run(engine)
    assert rows(flow, spark) == {moving: 4, **dict.fromkeys(others, 2)}
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_files_that_can_have_no_key_of_the_batch_are_not_read(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = keyed_by(flow, "string")
    for prefix in ("a", "m", "é"):
        produce(flow.topic, values([f"{prefix}{number}" for number in range(9)], 1))
        flow.run(engine)
    files = flow.load_table().inspect.data_files()["file_path"].to_pylist()
    gone = [path for path in files if rows_of(spark, path)[0][:1] in "aé"]
    assert 0 < len(gone) < len(files)
    for path in gone:
        Path(path.removeprefix("file://")).unlink()
    produce(flow.topic, values(["m3", "m'5\\"], 2))
    (batch,) = flow.run(engine).batches
    assert batch.rows[flow.table] == 2
    produce(flow.topic, values(["m4"], 2), partition=1)
    with raises(Code.KEY_MOVED, "m4"):
        flow.run(engine)


def rows_of(spark: SparkSession, path: str) -> list[str]:
    return sorted(row["id"] for row in spark.read.parquet(path).collect())

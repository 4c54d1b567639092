"""`order_by` from Kafka to what readers see: late and replayed changes change nothing, whatever partition and batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.decision import Verdict
from calve.sink_core.sink.batches import Ingest
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_spark
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

PARTITIONS = 3
COLUMNS = {"id": "long", "text": "string", "source": "struct<lsn: long, name: string>"}

Rows = dict[int, tuple[str, int]]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    table = {"name": "db.events", "mode": "upsert", "key": ["id"], "order_by": "source.lsn"}
    extra = {
        "tables": [{**table, "auto_create": {"columns": COLUMNS}}],
        "batch": {"min_task_bytes": "1KiB", "max_records": 200},
    }
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(PARTITIONS), extra=extra)


def value(key: int, text: str, lsn: int | None) -> bytes:
    return json.dumps({"id": key, "text": text, "source": {"lsn": lsn, "name": "pg"}}).encode()


def check(flow: Flow, spark: SparkSession, wanted: Rows) -> None:
    def as_rows(rows: list[dict[str, Any]]) -> list[tuple[int, tuple[str, int]]]:
        return sorted((row["id"], (row["text"], int(row["source"]["lsn"]))) for row in rows)

    assert as_rows(by_spark(spark, f"{flow.attached(spark)}.{flow.table}")) == sorted(wanted.items())
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_a_batch_of_late_changes_only_is_proven_too(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    produce(flow.topic, [value(1, "new", 9), value(2, "new", 9)])
    flow.run(engine)
    produce(flow.topic, [value(1, "old", 8), value(2, "old", 3)], partition=1)
    flow.run(engine)
    assert len(flow.own_snapshots()) == 2
    check(flow, spark, {1: ("new", 9), 2: ("new", 9)})
    produce(flow.topic, [value(1, "same", 9), value(3, "first", 1)], partition=2)
    flow.run(engine)
    check(flow, spark, {1: ("same", 9), 2: ("new", 9), 3: ("first", 1)})


def test_what_waits_for_its_commit_is_taken_in_before_a_batch_is_held_against_it(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow.run(engine)
    for lsn in (5, 3, 4):
        produce(flow.topic, [value(1, f"t{lsn}", lsn), value(lsn, "own", lsn)], partition=lsn % PARTITIONS)
        publish(flow, engine)
    flow.commit()
    check(flow, spark, {1: ("t5", 5), 3: ("own", 3), 4: ("own", 4), 5: ("own", 5)})


def publish(flow: Flow, engine: SparkEngine) -> None:
    """A batch that waits for its commit."""
    with flow.session(engine) as session:
        ingest = Ingest(session)
        ingest.bind()
        ingest.prepare()
        batch = ingest.next_batch()
        assert batch
        assert batch.verdict is Verdict.PUBLISH
        # A transaction's end reaches the control topic a moment after who committed it hears of it.
        session.log.refresh_to_end()


def test_any_change_is_newer_than_a_row_of_before_the_column_was_there(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    unordered = {"name": "db.events", "mode": "upsert", "key": ["id"], "auto_create": {"columns": {"id": "long"}}}
    produce(flow.topic, [b'{"id": 1}', b'{"id": 2}'])
    flow.but(extra={"tables": [unordered]}).run(engine)
    name = f"{flow.attached(spark)}.{flow.table}"
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (text string, source struct<lsn: bigint, name: string>)").collect()
    for number, changes in enumerate(([value(1, "a", 5)], [value(1, "late", 4), value(2, "b", -1)])):
        produce(flow.topic, changes, partition=number)
        flow.run(engine)
    check(flow, spark, {1: ("a", 5), 2: ("b", -1)})


def test_records_and_tombstones_without_an_order_are_dead_letters(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    produce(flow.topic, [value(1, "a", 1), value(2, "b", None), b'{"id": 3}', None], keys=["1", "2", "3", "1"])
    flow.run(engine)
    letters = sorted((row["offset"], row["error"]) for row in flow.rows(flow.pipeline.dead_letter_table))
    assert [(offset, error.partition(": ")[0]) for offset, error in letters] == [
        (offset, "source.lsn") for offset in (1, 2, 3)
    ]
    check(flow, spark, {1: ("a", 1)})

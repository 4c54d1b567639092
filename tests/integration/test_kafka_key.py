"""`key: kafka` from Kafka to what Spark and ClickHouse read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_chdb, by_spark
from tests.codes import raises
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

TABLE: dict[str, Any] = {"name": "db.events", "mode": "upsert", "key": "kafka", "auto_create": {}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))


def reading(flow: Flow, table: dict[str, Any], **source: Any) -> Flow:
    return flow.but(extra={"source": source, "tables": [{**TABLE, **table}]})


def letters(flow: Flow) -> list[tuple[int, str]]:
    return sorted((row["offset"], row["error"]) for row in flow.rows(flow.pipeline.dead_letter_table))


def proven(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_a_compacted_topic_of_texts_is_a_table_with_the_key_as_a_column(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = reading(flow, {}, key={"type": "string"}, value={"type": "string"})
    chance, state = random.Random(1), dict[str, str]()
    for _ in range(2):
        keys = [f"k{chance.randrange(20)}" for _ in range(100)]
        values = [None if chance.random() < 0.25 else f"{chance.getrandbits(20):x}" for _ in keys]
        for key, value in zip(keys, values, strict=True):
            state.pop(key, None)
            state |= {} if value is None else {key: value}
        produce(flow.topic, values, keys=keys)
        flow.run(engine)
        for rows in (by_spark(spark, f"{flow.attached(spark)}.{flow.table}"), by_chdb(flow.load_table())):
            assert sorted((row["_key"], row["value"]) for row in rows) == sorted(state.items())
    produce(flow.topic, ["a", None, "b"], keys=[None, None, b"\xff"])
    flow.run(engine)
    assert [(offset, "key" in error, "UTF-8" in error) for offset, error in letters(flow)] == [
        (200, True, False),
        (201, True, False),
        (202, True, True),
    ]
    proven(flow)
    schema = flow.load_table().schema()
    assert [schema.find_field(name).required for name in ("_key", "value")] == [True, False]
    assert schema.identifier_field_names() == {"_key"}


def test_a_key_with_fields_has_a_column_for_each_and_the_table_follows_its_records(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    key = {"type": "json", "as": "struct<id: long, region: string>"}
    flow = reading(flow, {"evolve": ["add_column"]}, key=key)
    keys = [json.dumps({"id": number, "region": "eu"}) for number in (1, 2, 3)]
    # The value's own id says nothing.
    produce(flow.topic, ['{"text": "a", "id": 7}', '{"text": "b"}', '{"text": "c"}'], keys=keys)
    flow.run(engine)
    produce(flow.topic, ['{"text": "d", "more": 1}', None, "{}"], keys=[keys[0], keys[1], '{"id": 4}'])
    flow.run(engine)
    name = f"{flow.attached(spark)}.{flow.table}"
    found = sorted((row["id"], row["region"], row["text"], row["more"]) for row in by_spark(spark, name))
    assert found == [(1, "eu", "d", 1), (3, "eu", "c", None)]
    assert [(offset, "region" in error) for offset, error in letters(flow)] == [(5, True)]
    assert [field.name for field in flow.load_table().schema().fields][:2] == ["id", "region"]
    proven(flow)


def test_tombstones_of_change_events_remove_their_row_where_compaction_has_taken_the_delete(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = reading(flow, {"mode": "cdc"}, key={"type": "json", "as": "struct<id: long>"})
    rows = [{"id": number, "text": "a"} for number in (1, 2)]
    events = [json.dumps({"op": "c", "before": None, "after": row, "ts_ms": 1}) for row in rows]
    produce(flow.topic, [*events, None], keys=['{"id": 1}', '{"id": 2}', '{"id": 1}'])
    flow.run(engine)
    found = by_spark(spark, f"{flow.attached(spark)}.{flow.table}")
    assert [(row["id"], row["text"]) for row in found] == [(2, "a")]
    proven(flow)


def test_a_table_whose_key_is_of_another_type_is_refused(flow: Flow, produce: Produce, engine: SparkEngine) -> None:
    flow = reading(flow, {}, key={"type": "string"})
    with flow.iceberg() as catalog:
        catalog.create_namespace("db")
        columns = [NestedField(1, "_key", LongType(), required=True), NestedField(2, "text", StringType())]
        catalog.create_table(flow.table, Schema(*columns))
    produce(flow.topic, ['{"text": "a"}'], keys=["1"])
    with raises(Code.KAFKA_KEY, "_key", "long", "string", of=TableUnusable):
        flow.run(engine)

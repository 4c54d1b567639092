"""Lists and maps of structs that are null stay null where files are read and written again: merges and replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs.engine import SparkEngine
from tests import support
from tests.integration.range_jobs import part, replay
from tests.pipelines import Flow
from tests.support import TopicFactory

COLUMNS = {"id": "long", "l": "list<struct<p: long>>", "m": "map<string, struct<p: long>>"}
RECORDS: list[dict[str, Any]] = [
    {"id": 1},
    {"id": 2, "l": [], "m": {}},
    {"id": 3, "l": [{"p": 1}, None, {}], "m": {"k": {"p": 2}, "n": None}},
    {"id": 4, "l": None, "m": None},
]
ROWS = [
    (1, None, None),
    (2, [], {}),
    (3, [{"p": 1}, None, {"p": None}], {"k": {"p": 2}, "n": None}),
    (4, None, None),
]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={"columns": COLUMNS})


def send(flow: Flow) -> None:
    values = [json.dumps(record).encode() for record in RECORDS]
    support.produce(flow.bootstrap, flow.topic, values)


def by_spark(flow: Flow, spark: SparkSession) -> list[tuple[Any, ...]]:
    found = spark.sql(f"SELECT id, l, m FROM {flow.attached(spark)}.{flow.table} ORDER BY id").collect()
    return [tuple(row.asDict(recursive=True).values()) for row in found]


def test_a_merge_keeps_them(flow: Flow, spark: SparkSession) -> None:
    table = {"name": flow.table, "mode": "upsert", "key": ["id"], "write_mode": "merge"}
    flow = flow.but(extra={"tables": [{**table, "auto_create": {"columns": COLUMNS}}]})
    for _ in range(2):
        send(flow)
        flow.run(SparkEngine(SparkSettings(master="local[2]", tasks=2)))
        assert by_spark(flow, spark) == ROWS


def test_a_replay_of_other_rows_keeps_them(flow: Flow, spark: SparkSession) -> None:
    send(flow)
    flow.run()
    assert by_spark(flow, spark) == ROWS
    assert replay(flow, part(flow, 1, 3)).replaced == 2
    assert by_spark(flow, spark) == ROWS

"""Rows that go through Spark's shuffle: each once, in the files the table's properties promise."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.pipelines import Flow, record
from tests.support import Produce, TopicFactory

IDS = list(range(3_000))


@pytest.fixture
def topic(kafka_topic: TopicFactory) -> str:
    return kafka_topic(3)


def flow_with(tmp_path: Path, broker: Broker, topic: str, mode: str, **auto_create: Any) -> Flow:
    """A pipeline whose table is there already, distributed by `mode` and sorted by id downwards."""
    created = {"columns": {"id": "long", "text": "string"}, "properties": {"write.distribution-mode": mode}}
    flow = Flow.create(
        tmp_path,
        broker.bootstrap,
        topic,
        auto_create={**created, **auto_create},
        extra={"batch": {"min_task_bytes": "1KiB"}},
    )
    flow.run()
    with flow.load_table().update_sort_order() as order:
        order.desc("id", transform=IdentityTransform())
    return flow


def produce_shuffled(flow: Flow, produce: Produce) -> None:
    """The ids in no order over three partitions, with a bad record and a tombstone in each."""
    ids = random.Random(5).sample(IDS, len(IDS))
    for partition in range(3):
        values: list[bytes | None] = [record(i) for i in ids[partition::3]]
        produce(flow.topic, [*values[:500], b"bad", None, *values[500:]], partition=partition)


def files_of(flow: Flow, table: str = "") -> list[dict[str, Any]]:
    """Of a table, as its manifests have them, with the ids in them as another reader reads them."""
    found = flow.load_table(table or flow.table).inspect.data_files().to_pylist()
    for file in found:
        path = file["file_path"].removeprefix("file://")
        file["ids"] = [row[0] for row in duckdb.sql(f"select id from read_parquet('{path}')").fetchall()]
    return found


def check_all_there(flow: Flow, spark: SparkSession) -> None:
    assert flow.ids() == flow.spark_ids(spark) == IDS
    assert len(flow.rows(flow.pipeline.dead_letter_table)) == 3
    ledger = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    assert [(row["records"], row["tombstones"], row["dead_lettered"]) for row in ledger] == [(1_002, 1, 1)] * 3
    assert [dict(row["written"]) for row in ledger] == [{flow.table: 1_000}] * 3
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


def test_hash_puts_each_partition_into_one_file(
    tmp_path: Path, broker: Broker, topic: str, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = flow_with(tmp_path, broker, topic, "hash", partition_by=["bucket(7, id)"])
    produce_shuffled(flow, produce)
    flow.run(engine)
    files = files_of(flow)
    assert sorted(file["partition"]["id_bucket"] for file in files) == list(range(7))
    assert all(file["ids"] == sorted(file["ids"], reverse=True) for file in files)
    assert {file["sort_order_id"] for file in files} == {1}
    check_all_there(flow, spark)


def test_range_gives_each_file_a_range_of_its_own(
    tmp_path: Path, broker: Broker, topic: str, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    flow = flow_with(tmp_path, broker, topic, "range")
    produce_shuffled(flow, produce)
    flow.run(engine)
    files = sorted(files_of(flow), key=lambda file: file["ids"][0])
    assert len(files) == 2
    assert all(file["ids"] == sorted(file["ids"], reverse=True) for file in files)
    assert all(lower["ids"][0] < upper["ids"][-1] for lower, upper in pairwise(files))
    assert min(len(file["ids"]) for file in files) > 1_000
    # The topics were read once, though what was read was looked at twice: else there were dead letters nobody names.
    letters = flow.load_table(flow.pipeline.dead_letter_table)
    named = letters.inspect.data_files()["file_path"].to_pylist()
    written = Path(letters.location().removeprefix("file://")).rglob("*.parquet")
    assert sorted(f"file://{path}" for path in written) == sorted(named)
    check_all_there(flow, spark)


def test_tables_of_one_batch_are_distributed_each_by_its_own_mode(
    tmp_path: Path, broker: Broker, topic: str, produce: Produce, engine: SparkEngine
) -> None:
    def created(mode: str, **more: Any) -> dict[str, Any]:
        properties = {"write.distribution-mode": mode}
        columns = {"id": "long", "text": "string"}
        return {"name": f"db.{mode}", "auto_create": {"columns": columns, "properties": properties, **more}}

    flow = Flow.create(
        tmp_path,
        broker.bootstrap,
        topic,
        tables=("db.none", "db.hash", "db.range"),
        extra={
            "tables": [created("none"), created("hash", partition_by=["bucket(7, id)"]), created("range")],
            "batch": {"min_task_bytes": "1KiB"},
        },
    )
    flow.run()
    with flow.load_table("db.range").update_sort_order() as order:
        order.desc("id", transform=IdentityTransform())
    produce_shuffled(flow, produce)
    [batch] = flow.run(engine).batches
    assert batch.rows.items() >= dict.fromkeys(flow.tables, 3_000).items()
    for table in flow.tables:
        assert flow.ids(table) == IDS
    buckets = [file["partition"]["id_bucket"] for file in files_of(flow, "db.hash")]
    assert sorted(buckets) == list(range(7))
    upper, lower = sorted(files_of(flow, "db.range"), key=lambda file: -max(file["ids"]))
    assert min(upper["ids"]) > max(lower["ids"])
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


CHILD = """
import sys
from collections.abc import Iterator
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from calve.sink_core.config.load import load
from calve.sink_core.sink.loop.session import Session
from calve.spark_jobs import shuffle
from calve.sink_core.sink.run import run_pipeline
from calve.spark_jobs.engine import SparkEngine

def dies_once(stage, after):
    def run(*given):
        for number, row in enumerate(stage(*given)):
            yield row
            if number == after and TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("died in its first attempt")
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("died at the end of its first attempt")
    return run

shuffle._read = dies_once(shuffle._read, 3)
shuffle._write_bucket = dies_once(shuffle._write_bucket, 1_000)
pipeline = load(Path(sys.argv[1]))
with SparkEngine(pipeline.spark) as engine, Session.open(pipeline, engine=engine) as session:
    run_pipeline(session)
"""


def test_tasks_that_die_and_are_tried_again_double_nothing(
    tmp_path: Path, broker: Broker, topic: str, produce: Produce, spark: SparkSession
) -> None:
    flow = flow_with(tmp_path, broker, topic, "range", partition_by=["bucket(3, id)"])
    flow = flow.but(spark={"master": "local[2,3]", "driver_memory": "512MiB"})
    produce_shuffled(flow, produce)
    done = subprocess.run([sys.executable, "-c", CHILD, str(flow.pipeline.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_all_there(flow, spark)
    named = {file["file_path"].removeprefix("file://") for file in files_of(flow)}
    # Those of the first attempts that nobody names.
    assert len(list(Path(flow.lake).rglob("*-shuffled-*.parquet"))) > len(named)

"""Equality deletes that pile up, and the compaction that takes them out of the files."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.table_maintenance import Compact
from calve.sink_core.iceberg.maintenance.deletes import equality_deletes
from calve.sink_core.iceberg.maintenance.shape import live_files
from calve.sink_core.sink.maintenance.compact import compact
from calve.sink_core.sink.maintenance.work import Work
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.procedures import SparkProcedures
from tests.changing import Change, by_spark
from tests.integration.test_changes_read_back import BY_COUNTRY, State, after, as_state, create, drop, put, take_in
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
MANY = 3
NOW = Compact(lag=0.0, min_files=100, max_deletes=MANY)


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    table = {"name": "db.events", "mode": "upsert", "key": ["id"]}
    created = {"columns": {"id": "long", "text": "string"}}
    return Flow.create(
        tmp_path, broker.bootstrap, kafka_topic(1), extra={"tables": [{**table, "auto_create": created}]}
    )


@pytest.fixture
def work(flow: Flow, spark: SparkSession) -> Generator[Work]:
    with flow.session() as session:
        yield Work(session, SparkProcedures(lambda: spark, flow.pipeline.catalog), lambda _step: None, ("db.events",))


def change_often(flow: Flow, produce: Produce, engine: SparkEngine, times: int, text: str) -> None:
    for number in range(times):
        changes = [f'{{"id": {key}, "text": "{text}{number}"}}'.encode() for key in range(10)]
        produce(flow.topic, [*changes, None], keys=[*(str(key).encode() for key in range(10)), b"9"])
        flow.run(engine)


def test_files_with_many_deletes_are_rewritten_and_the_deletes_go(
    flow: Flow, produce: Produce, work: Work, spark: SparkSession
) -> None:
    with SparkEngine(SparkSettings(master="local[2]")) as engine:
        change_often(flow, produce, engine, 2, "few")
        work.session.read_only()
        work.session.bind()
        [few] = compact(work, NOW).done
        assert (few.changed, "max_deletes" in few.did, str(MANY) in few.did) == (False, True, True)
        change_often(flow, produce, engine, 4, "many")
        [done] = compact(work, NOW).done
        assert done.changed
        assert done.after["delete_files"] < done.before["delete_files"]
        assert max(file.deletes for file in live_files(flow.load_table(), count_deletes=100)) < MANY
        rows = by_spark(spark, f"{flow.attached(spark)}.{flow.table}")
        assert sorted((row["id"], row["text"]) for row in rows) == [(key, "many3") for key in range(9)]
        change_often(flow, produce, engine, 1, "later")
    with flow.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_COUNTRY, BY_KEY], ids=["one partition", "by country", "by key"])
@pytest.mark.parametrize("seed", range(3))
def test_deletes_are_counted_as_iceberg_counts_them(
    lake: SqlCatalog, spark: SparkSession, spec: PartitionSpec, seed: int
) -> None:
    chance, name, state = random.Random(seed), create(lake, spec), State()
    for _ in range(6):
        around = chance.randrange(100)
        changes: list[Change] = [
            chance.choice([put(around + key, chance.choice(["nl", "be"])), drop(around + key)]) for key in range(30)
        ]
        take_in(lake, name, changes)
        state = after(state, changes)
    table = lake.load_table(name)
    of_partitions = [delete.partition for delete in equality_deletes(table) if delete.partition is not None]
    assert bool(of_partitions) == (spec == BY_KEY)
    wanted = sum(file.deletes >= MANY for file in live_files(table, count_deletes=MANY))
    assert wanted
    options = {
        "delete-file-threshold": str(MANY),
        "min-file-size-bytes": "0",
        "min-input-files": "100",
        "remove-dangling-deletes": "true",
    }
    given = ", ".join(f"'{part}'" for option in options.items() for part in option)
    [done] = spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map({given}))").collect()
    assert done["rewritten_data_files_count"] == wanted
    assert as_state(by_spark(spark, f"lake.{name}")) == state
    table = lake.load_table(name)
    assert all(file.deletes < MANY for file in live_files(table, count_deletes=MANY))
    assert equality_deletes(table) == sorted(equality_deletes(table), key=lambda delete: -delete.sequence_number)

"""Batches that wait to be merged while the pipeline file changes: each is merged as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests.changing import by_spark
from tests.codes import says
from tests.integration.test_merge import commit_by_spark
from tests.integration.test_order_by import COLUMNS, value
from tests.integration.test_order_by import check as check_ordered
from tests.integration.test_upsert import publish
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

MERGED = {"name": "db.events", "mode": "upsert", "write_mode": "merge", "on_moved_key": "ignore"}
SEVERAL = {"batch": {"min_task_bytes": "1KiB"}, "commit": {"every": "1m"}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def of(flow: Flow, more: dict[str, Any], **table: Any) -> Flow:
    return flow.but(extra={**more, "tables": [{**MERGED, **table}]})


def test_late_changes_stay_late_when_equality_deletes_are_set_again(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    ordered = {"key": ["id"], "order_by": "source.lsn", "auto_create": {"columns": COLUMNS}}
    merging = of(flow, SEVERAL, **ordered)
    produce(flow.topic, [value(1, "new", 9), value(2, "old", 2)])
    merging.run(engine)
    # Of two batches that wait the older has the newer change of a key.
    for waiting in ([value(1, "late", 8), value(2, "new", 5), value(4, "newer", 7)], [value(4, "old", 6)]):
        produce(flow.topic, waiting)
        publish(merging, engine)
    deleting = of(flow, {}, **ordered, write_mode="equality_deletes")
    with deleting.session() as session:
        session.bind()
        failed = session.coordinator().commit().failed[flow.table]
    # It was not held against the table: only a merge brings it in.
    assert isinstance(failed, TableUnusable)
    says(str(failed), Code.MERGED_BY_SPARK, "db.events")
    produce(flow.topic, [value(2, "late", 4), value(3, "first", 1)], partition=1)
    (batch,) = deleting.run(engine).batches
    assert batch.rows[flow.table] == 2
    check_ordered(deleting, spark, {1: ("new", 9), 2: ("new", 5), 3: ("first", 1), 4: ("newer", 7)})
    assert [len(said.batches) for _, said in deleting.own_snapshots()] == [1, 2, 1]


def test_what_was_written_by_another_key_is_merged_by_that(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    columns = {"columns": {"id": "long", "site": "string", "text": "string"}, "identifier_fields": ["id", "site"]}
    by_both, by_id = (of(flow, SEVERAL, auto_create=columns, **key) for key in ({}, {"key": ["id"]}))

    def send(*rows: tuple[int, str, str]) -> None:
        values = [json.dumps(dict(zip(("id", "site", "text"), row, strict=True))) for row in rows]
        produce(flow.topic, [value.encode() for value in values])

    send((1, "a", "old"), (2, "a", "old"))
    by_both.run(engine)
    send((2, "b", "other"), (1, "a", "new"))
    publish(by_both, engine)
    send((1, "c", "moved"))
    publish(by_id, engine)
    report = commit_by_spark(by_id, engine)
    assert (len(report.batches), report.rows, report.landed) == (2, 3, True)
    rows = by_spark(spark, f"{by_id.attached(spark)}.{flow.table}")
    wanted = [(1, "c", "moved"), (2, "a", "old"), (2, "b", "other")]
    assert sorted((row["id"], row["site"], row["text"]) for row in rows) == wanted
    own = [said for _, said in by_id.own_snapshots()]
    assert [len(said.batches) for said in own] == [1, 1, 1]
    assert own[1].stored_offset < own[2].stored_offset
    with by_id.session() as session:
        session.bind()
        assert verify(session, deep=True).violations == ()

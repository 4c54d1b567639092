"""`write_mode: merge` from Kafka to what readers have, pyiceberg's and ClickHouse's among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

import calve.sink_core.sink.maintenance.expire
from calve.orchestration.local.broker import Broker
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.table_maintenance import Expire
from calve.sink_core.iceberg.commit.staging import STAGING_MS
from calve.sink_core.sink.maintenance.expire import expire
from calve.sink_core.sink.maintenance.work import Work, now_ms
from calve.sink_core.tables.batch import ToMerge
from calve.sink_core.tables.commit import TableCommit
from calve.spark_jobs.engine import SparkEngine
from calve.spark_jobs.procedures import SparkProcedures
from tests import support
from tests.changing import by_spark, merge, written
from tests.integration.test_changes_read_back import BY_COUNTRY, after, as_state, create
from tests.integration.test_changes_read_back import State as Rows
from tests.integration.test_changes_read_back import drop as drop_in
from tests.integration.test_changes_read_back import put as put_in
from tests.integration.test_upsert import PARTITIONS, check, drop, publish, put, send
from tests.pipelines import Flow, reached
from tests.support import Produce, TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    table = {"name": "db.events", "mode": "upsert", "key": ["id"], "write_mode": "merge", "on_moved_key": "ignore"}
    created = {"columns": {"id": "long", "text": "string"}}
    extra = {"tables": [{**table, "auto_create": created}], "batch": {"min_task_bytes": "1KiB", "max_records": 400}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(PARTITIONS), extra=extra)


def test_batches_that_waited_are_merged_at_once(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine
) -> None:
    for records in ([put(1, "a"), put(2, "a")], [drop(1), put(3, "a")], [put(2, "b"), drop(3)], [drop(9), put(1, "c")]):
        send(flow, produce, *records)
        publish(flow, engine)
    assert commit_by_spark(flow, engine).landed
    own = flow.own_snapshots()
    assert [[*said.counts.values()] for _, said in own] == [[2, 1, 1, 1]]
    check(flow, spark, {1: "c", 2: "b"})
    # There are no equality deletes, which pyiceberg can't read.
    assert sorted((row["id"], row["text"]) for row in flow.rows()) == [(1, "c"), (2, "b")]
    assert flow.load_table().metadata.refs.keys() == {"main", flow.pipeline.tag}


def commit_by_spark(flow: Flow, engine: SparkEngine) -> TableCommit:
    """The coordinator alone, as `calve commit` does it; what became of the table that is merged into."""
    with flow.session(engine) as session:
        session.bind()
        report = session.coordinator().commit(tables=[flow.table])
    (found,) = (commit for commit in report.commits if commit.table == flow.table)
    return found


class Killed(BaseException):
    """Nothing is tidied up after it."""


def test_expiry_drops_what_a_killed_merge_left_and_nothing_that_is_still_to_be_merged(
    flow: Flow, produce: Produce, spark: SparkSession, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise Killed

    def expire_at(now_ms: int) -> None:
        monkeypatch.setattr(calve.sink_core.sink.maintenance.expire, "now_ms", lambda: now_ms)
        with flow.session() as session:
            session.bind()
            work = Work(session, SparkProcedures(lambda: spark, session.pipeline.catalog), print, tables=[flow.table])
            expire(work, Expire.model_construct(cron="", older_than=60.0, retain_last=1)).raise_failures()

    send(flow, produce, put(1, "a"))
    publish(flow, engine)
    with pytest.raises(Killed), reached("merge.after-changes", die):
        commit_by_spark(flow, engine)
    (branch,) = flow.load_table().metadata.refs
    expire_at(now_ms())
    assert flow.load_table().metadata.refs.keys() == {branch}
    expire_at(now_ms() + STAGING_MS)
    assert flow.load_table().metadata.refs == {}
    assert flow.load_table().metadata.snapshots == []
    assert commit_by_spark(flow, engine).landed
    check(flow, spark, {1: "a"})


@pytest.mark.parametrize("mode", [pytest.param("copy-on-write", marks=pytest.mark.faults), "merge-on-read"])
def test_keys_that_move_to_another_partition_leave_no_row_behind(
    mode: str, lake: SqlCatalog, lake_dir: Path, spark: SparkSession
) -> None:
    name, state = create(lake, BY_COUNTRY), Rows()
    with lake.load_table(name).transaction() as change:
        change.set_properties({"write.merge.mode": mode})
    settings = CatalogSettings("lake", {"type": "sql", **support.catalog_properties(lake_dir)}, {})
    first = [put_in(1, "nl"), put_in(2, "nl"), put_in(3, "be")]
    second = [[put_in(1, "be"), drop_in(2), drop_in(3)], [put_in(1, "de"), put_in(3, "nl", 1), drop_in(9)]]
    for batches in ([first], second):
        outputs = [written(lake, lake.load_table(name), ["id"], batch) for batch in batches]
        # What is written by an older schema fits as well.
        with lake.load_table(name).update_schema() as schema:
            schema.add_column(f"more{len(batches)}", LongType())
        merge(lake, name, outputs, spark, settings, ToMerge((1,)))
        for batch in batches:
            state = after(state, batch)
    assert as_state(by_spark(spark, f"lake.{name}")) == state == {1: ("de", 0), 3: ("nl", 1)}
    has_deletes = len(lake.load_table(name).inspect.delete_files())
    assert bool(has_deletes) == (mode == "merge-on-read")
    if not has_deletes:
        assert as_state(lake.load_table(name).scan().to_arrow().to_pylist()) == state

"""Committing to a real catalog: whoever else writes and whatever reply is lost, each batch lands once, or a finding."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import FindingError, UnknownOutcome
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.tables.log.events import CommitToTable
from tests.codes import finding, raises
from tests.pipelines import Flow, reached, tagged
from tests.support import TopicFactory

CommitTable = Callable[..., Any]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def commit_through(flow: Flow, edge: Callable[[CommitTable, Table, tuple[Any, ...]], Any]) -> CommitReport:
    """Commit by way of a catalog whose `commit_table` call passes `edge`, which may drop it or its answer."""
    with flow.session() as session, pytest.MonkeyPatch.context() as patch:
        session.bind()
        real = session.catalog.commit_table
        patch.setattr(session.catalog, "commit_table", lambda table, *args: edge(real, table, args))
        return session.coordinator().commit(tables=flow.pipeline.table_names)


def committed(report: CommitReport, table: str) -> tuple[bool, int]:
    """Whether a table's commit landed, and after how many conflicts."""
    [commit] = [commit for commit in report.commits if commit.table == table]
    return commit.landed, commit.conflicts


def once(action: Callable[[], object]) -> Callable[[], bool]:
    """Do `action` at the first call; says whether this was the first."""
    left = [action]

    def call() -> bool:
        if not left:
            return False
        left.pop()()
        return True

    return call


def test_metadata_files_go_once_so_many_have_followed(flow: Flow) -> None:
    flow = replace(flow, auto_create={"properties": {"write.metadata.previous-versions-max": "2"}, **flow.auto_create})
    for start in range(5):
        flow.produce([start])
        flow.run()
    table = flow.load_table()
    current = Path(table.metadata_location.removeprefix("file://"))
    named = {Path(entry.metadata_file.removeprefix("file://")) for entry in table.metadata.metadata_log}
    assert len(named) == 2
    assert set(current.parent.glob("*.metadata.json")) == {current, *named}
    assert flow.ids() == list(range(5))


def test_a_foreign_append_between_check_and_swap_costs_a_try(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    foreign = once(lambda: flow.append_foreign(100))

    def edge(real: CommitTable, table: Table, args: tuple[Any, ...]) -> object:
        if ".".join(table.name()) == flow.table:
            foreign()
        return real(table, *args)

    assert committed(commit_through(flow, edge), flow.table) == (True, 1)
    assert flow.ids() == [*range(5), 100]
    assert len(flow.own_snapshots()) == 1


def test_a_rollback_between_check_and_retry_is_a_finding(flow: Flow) -> None:
    for start in (0, 5):
        flow.produce(range(start, start + 5))
        flow.run()
    flow.produce(range(10, 15))
    flow.publish()
    before = flow.own_snapshots()
    (first, _), (second, _) = before
    roll_back = once(lambda: flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit())

    def edge(real: CommitTable, table: Table, args: tuple[Any, ...]) -> object:
        if ".".join(table.name()) == flow.table:
            roll_back()
        return real(table, *args)

    error = commit_through(flow, edge).failed[flow.table]
    assert isinstance(error, FindingError)
    assert error.finding == "table-rolled-back"
    assert str(second) in error.stored
    assert str(first) in error.found
    assert flow.ids() == list(range(5))
    assert flow.own_snapshots() == before


@pytest.mark.parametrize("landed", [True, False], ids=["after it landed", "before it arrived"])
def test_a_commit_whose_reply_was_lost_lands_once(flow: Flow, landed: bool) -> None:
    flow.produce(range(5))
    flow.publish()
    first = once(lambda: None)

    def edge(real: CommitTable, table: Table, args: tuple[Any, ...]) -> object:
        if ".".join(table.name()) != flow.table or not first():
            return real(table, *args)
        if landed:
            real(table, *args)
        raise ConnectionError("no answer from the catalog")

    assert committed(commit_through(flow, edge), flow.table)[0]
    assert len(flow.own_snapshots()) == 1
    assert flow.ids() == list(range(5))


def test_a_commit_that_arrives_late_is_refused_by_the_table(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    late: list[Callable[[], Any]] = []

    def edge(real: CommitTable, table: Table, args: tuple[Any, ...]) -> object:
        if ".".join(table.name()) == flow.table and not late:
            late.append(lambda: real(table, *args))
            raise TimeoutError("still on its way")
        return real(table, *args)

    assert committed(commit_through(flow, edge), flow.table) == (True, 1)
    with pytest.raises(Exception, match="Requirement failed"):
        late[0]()
    assert flow.ids() == list(range(5))


def test_two_coordinators_at_once_commit_once(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    with reached("commit.after-list", flow.commit):
        report = flow.commit()
    assert not report.failed
    for table in (flow.table, flow.pipeline.ledger_table):
        assert len(flow.own_snapshots(table)) == 1
    assert flow.ids() == list(range(5))


def test_many_coordinators_at_once_commit_once(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda _: flow.commit(), range(3)))
    assert not any(report.failed for report in reports)
    assert sum(commit.landed for report in reports for commit in report.commits if commit.table == flow.table) == 1
    assert flow.ids() == list(range(5))


def test_what_a_dead_coordinator_left_unsaid_is_told_by_the_next(flow: Flow) -> None:
    def die() -> None:
        raise UnknownOutcome("the coordinator is gone")

    flow.produce(range(5))
    flow.publish()
    with reached("commit.after-swap", die):
        assert list(flow.commit().failed) == [flow.pipeline.ledger_table]
    ledger = flow.pipeline.ledger_table
    assert ledger not in {event.table for event in flow.events(CommitToTable)}
    flow.commit()
    [(snapshot, own)] = flow.own_snapshots(ledger)
    told = {event.table: event for event in flow.events(CommitToTable)}
    assert (told[ledger].snapshot_id, told[ledger].stored_offset) == (snapshot, own.stored_offset)


def test_a_dropped_table_is_a_finding_and_the_others_go_on(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
    report = flow.commit()
    assert isinstance(report.failed[flow.table], FindingError)
    assert [c.table for c in report.landed] == [flow.pipeline.ledger_table]


def test_a_table_recreated_before_its_commit_is_a_finding(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    flow.recreate_table()
    error = flow.commit().failed[flow.table]
    assert isinstance(error, FindingError)
    assert error.finding == "table-recreated"
    assert flow.ids() == []


def test_a_table_evolved_between_write_and_commit_takes_the_files_as_they_are(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(5))
    flow.publish()
    table = flow.load_table()
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    with table.update_schema() as schema:
        schema.add_column("later", IntegerType())
    assert not flow.commit().failed
    flow.produce(range(5, 10))
    flow.run()
    assert flow.ids() == flow.spark_ids(spark) == list(range(10))
    assert {file["spec_id"] for file in flow.load_table().inspect.files().to_pylist()} == {0, 1}


def test_each_snapshot_says_what_it_holds(flow: Flow) -> None:
    flow.produce(range(5))
    flow.produce(range(5, 7), partition=1)
    first = flow.run().batches[0].batch_id
    flow.produce(range(7, 10))
    second = flow.run().batches[0].batch_id
    [(_, one), (last, two)] = flow.own_snapshots()
    assert (one.batches, two.batches) == ((first,), (second,))
    assert (one.counts, two.counts) == ({first: 7}, {second: 3})
    assert 0 < one.stored_offset < two.stored_offset
    assert one.valid_through_ms is not None
    assert two.valid_through_ms is not None
    assert one.valid_through_ms <= two.valid_through_ms
    assert tagged(flow, flow.load_table()) == last
    with flow.session() as session:
        session.bind()
        assert (two.cluster_id, two.control_topic_id) == (session.cluster_id, session.log.topic_id)


def test_batches_that_waited_land_in_one_snapshot(flow: Flow) -> None:
    flow = flow.but(extra={"batch": {"max_records": 5}, "commit": {"every": "1h"}})
    flow.produce(range(15))
    batches = [batch.batch_id for batch in flow.run().batches]
    [(_, own)] = flow.own_snapshots()
    assert list(own.batches) == batches
    assert own.counts == dict.fromkeys(batches, 5)
    assert flow.ids() == list(range(15))


def test_spark_reads_rows_origin_and_totals_as_they_are(flow: Flow, spark: SparkSession) -> None:
    flow = flow.but(auto_create={"columns": {"id": "long", "text": "string"}, "partition_by": ["bucket(2, id)"]})
    for start in (0, 10):
        flow.produce(range(start, start + 10), partition=start // 10)
        flow.run()
    name = f"{flow.attached(spark)}.{flow.table}"
    rows = spark.sql(f"SELECT id, text, _kafka.* FROM {name} ORDER BY id").collect()
    assert [(r.id, r.text, r.topic, r.partition, r.offset) for r in rows] == [
        (i, f"n{i}", flow.topic, i // 10, i % 10) for i in range(20)
    ]
    assert all(r.timestamp is not None for r in rows)
    files = spark.sql(f"SELECT count(*) n, sum(record_count) r, sum(file_size_in_bytes) b FROM {name}.files").first()
    summary = spark.sql(f"SELECT summary FROM {name}.snapshots ORDER BY committed_at DESC").first()
    assert files is not None
    assert summary is not None
    totals = {key: int(summary.summary[f"total-{key}"]) for key in ("data-files", "records", "files-size")}
    assert totals == {"data-files": files.n, "records": files.r, "files-size": files.b}
    assert files.r == 20
    added = spark.sql(f"SELECT sum(added_data_files_count) n FROM {name}.manifests").first()
    assert added is not None
    assert added.n == files.n


def test_a_reader_at_an_old_snapshot_sees_what_was_there(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(5))
    flow.run()
    flow.produce(range(5, 8))
    flow.run()
    [(old, _), _] = flow.own_snapshots()
    name = f"{flow.attached(spark)}.{flow.table}"
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF {old}").count() == 5
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF '{flow.pipeline.tag}'").count() == 8


def test_compaction_by_spark_between_commits_is_no_finding(flow: Flow, spark: SparkSession) -> None:
    for start in (0, 5):
        flow.produce(range(start, start + 5))
        flow.run()
    compact(flow, spark)
    flow.produce(range(10, 15))
    assert flow.run().ended == "caught up"
    assert flow.ids() == flow.spark_ids(spark) == list(range(15))


def test_the_tag_keeps_its_snapshot_when_spark_expires_all_others(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(5))
    flow.run()
    flow.append_foreign(100)
    flow.append_foreign(101)
    expire(flow, spark)
    [(kept, _)] = flow.own_snapshots()
    table = flow.load_table()
    assert tagged(flow, table) == kept
    assert len(table.metadata.snapshots) == 2
    flow.produce(range(5, 8))
    assert flow.run().ended == "caught up"
    assert flow.spark_ids(spark) == [*range(8), 100, 101]


def test_the_tag_keeps_its_snapshot_when_pyiceberg_expires_all_others(flow: Flow) -> None:
    flow.produce(range(5))
    flow.run()
    flow.append_foreign(100)
    flow.append_foreign(101)
    time.sleep(0.01)
    flow.load_table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    [(kept, _)] = flow.own_snapshots()
    assert tagged(flow, flow.load_table()) == kept
    flow.produce(range(5, 8))
    assert flow.run().ended == "caught up"
    assert flow.ids() == [*range(8), 100, 101]


def test_expiry_that_cuts_the_ancestry_after_the_files_were_replaced_is_a_finding(
    flow: Flow, spark: SparkSession
) -> None:
    for start in (0, 5):
        flow.produce(range(start, start + 5))
        flow.run()
    compact(flow, spark)
    flow.append_foreign(100)
    expire(flow, spark)
    flow.produce(range(10, 15))
    with raises(finding("table-rolled-back"), flow.table):
        flow.run()
    assert flow.ids() == [*range(10), 100]


def test_a_cherry_picked_snapshot_of_ours_counts_as_there(flow: Flow, spark: SparkSession) -> None:
    flow.produce(range(5))
    flow.run()
    flow.produce(range(5, 8))
    flow.run()
    [(first, _), (second, _)] = flow.own_snapshots()
    catalog = flow.attached(spark)
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{flow.table}', {first})")
    flow.append_foreign(100)
    spark.sql(f"CALL {catalog}.system.cherrypick_snapshot('{flow.table}', {second})")
    flow.produce(range(8, 10))
    assert flow.run().ended == "caught up"
    assert flow.ids() == flow.spark_ids(spark) == [*range(10), 100]


def compact(flow: Flow, spark: SparkSession) -> None:
    catalog = flow.attached(spark)
    options = "map('rewrite-all', 'true')"
    done = spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{flow.table}', options => {options})").first()
    assert done is not None
    assert done.rewritten_data_files_count > 0


def expire(flow: Flow, spark: SparkSession) -> None:
    """Everything Spark may expire."""
    catalog = flow.attached(spark)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d %H:%M:%S")
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots("
        f"table => '{flow.table}', older_than => TIMESTAMP '{tomorrow}', retain_last => 1)"
    )

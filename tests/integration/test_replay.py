"""Rows of published ranges are replaced by what Kafka has of them, in one commit, and no others."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.trim import trim
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests import support
from tests.codes import finding, raises, says
from tests.damage import roll_back
from tests.integration.range_jobs import assert_proven, delete, filled, part, replay
from tests.launch import calve
from tests.pipelines import COLUMNS, Flow
from tests.resolving import refused, resolved
from tests.support import TopicFactory

PARTITIONED = {"columns": COLUMNS, "partition_by": ["bucket(2, id)"]}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)))


def test_rows_of_a_range_are_replaced_and_no_others(flow: Flow, spark: SparkSession) -> None:
    delete(flow, "id = 3")
    positions = flow.positions()
    report = replay(flow, part(flow, 2, 6))
    assert (report.verdict, report.rows, report.replaced) == (Verdict.PUBLISH, 4, 3)
    assert report.ranges == ((flow.topic, 0, 2, 6),)
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))
    assert flow.positions() == positions
    head = flow.load_table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is Operation.OVERWRITE
    assert head.summary["total-records"] == "30"
    assert_proven(flow, flow.table)


def test_what_would_be_replaced_is_shown_before_it_is(flow: Flow) -> None:
    snapshots = len(flow.load_table().metadata.snapshots)
    given = ["replay", flow.pipeline.path, "--table", flow.table, "--range", f"{flow.topic}/0:0-10"]
    shown = json.loads(calve(*given, "--dry-run", "--json").stdout)
    assert (shown["ranges"], shown["offsets"], shown["rows"], shown["files"]) == ([[flow.topic, 0, 0, 10]], 10, 10, 1)
    assert shown["bytes"] > 0
    told = calve(*given, "--dry-run").stdout
    assert {"10", flow.table} <= {*told.split()}
    unasked = calve(*given)
    assert unasked.returncode == 2
    assert {"10", flow.table} <= {*unasked.stdout.split()}
    says(unasked.stderr, Code.NOBODY_TO_ASK)
    of_table = ("replay", flow.pipeline.path, "--table", flow.table, "--dry-run")
    nothing = json.loads(calve(*of_table, "--to", "9999d", "--json").stdout)
    assert (nothing["ranges"], nothing["offsets"], nothing["rows"], nothing["files"]) == ([], 0, 0, 0)
    assert flow.table in nothing["ended"]
    alone = calve(*of_table)
    assert alone.returncode == 2
    says(alone.stderr, Code.OPTION, "--dry-run", "--from", "--to", "--range")
    assert len(flow.load_table().metadata.snapshots) == snapshots
    assert calve(*given, "--yes").returncode == 0
    assert flow.ids() == list(range(30))


def test_the_whole_of_a_file_goes_without_a_file_in_its_place(flow: Flow, spark: SparkSession) -> None:
    files = len(list(flow.load_table().scan().plan_files()))
    report = replay(flow, part(flow, 0, 10), part(flow, 0, 12, partition=1))
    assert (report.rows, report.replaced) == (20, 20)
    assert flow.events(DataWritten)[-1].replaces is not None
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))
    assert len(list(flow.load_table().scan().plan_files())) == files
    assert_proven(flow)
    flow.produce(range(30, 35))
    assert flow.run().ended == "caught up"
    assert flow.ids() == flow.spark_ids(spark) == list(range(35))
    assert_proven(flow)


def test_times_choose_whole_batches_by_the_ledger_s_planned_at(flow: Flow) -> None:
    planned: list[datetime] = sorted({row["planned_at"] for row in flow.rows(flow.pipeline.ledger_table)})
    second, third = (int(at.timestamp() * 1000) for at in planned[1:])
    assert replay(flow, from_ms=second, to_ms=third).ranges == ((flow.topic, 1, 0, 12),)
    assert replay(flow, part(flow, 15, 99), from_ms=third).ranges == ((flow.topic, 0, 15, 20),)
    assert replay(flow, from_ms=third + 10**9).batch_id == ""
    assert replay(flow, to_ms=third + 10**9).rows == 30
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_rows_that_were_doubled_or_changed_by_hand_are_put_right(flow: Flow, spark: SparkSession) -> None:
    table = flow.load_table()
    table.append(table.scan(row_filter="id < 5").to_arrow())
    table.overwrite(table.scan(row_filter="id = 7").to_arrow().set_column(1, "text", [["wrong"]]), "id = 7")
    assert len(flow.ids()) == 35
    assert replay(flow, part(flow, 0, 10)).replaced == 15
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))
    assert {row["text"] for row in flow.rows() if row["id"] == 7} == {"n7"}
    assert_proven(flow, flow.table)


def test_dead_letters_of_the_ranges_stay_where_they_are(flow: Flow) -> None:
    letters = flow.rows(flow.pipeline.dead_letter_table)
    replay(flow, part(flow, 0, 12, partition=1))
    assert flow.rows(flow.pipeline.dead_letter_table) == letters
    assert_proven(flow)


def test_rewritten_files_keep_their_partition_spec_and_schema_changes_reach_them(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession
) -> None:
    flow = filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), auto_create=PARTITIONED))
    with flow.load_table().update_spec() as update:
        update.add_field("text", IdentityTransform())
    with flow.load_table().update_schema() as schema:
        schema.rename_column("text", "words")
    flow.produce(range(30, 33))
    flow.run()
    before = specs_of(flow.load_table(), "id > 5 and id < 10")
    assert replay(flow, part(flow, 2, 6), part(flow, 20, 22)).replaced == 6
    assert flow.ids() == flow.spark_ids(spark) == list(range(33))
    assert specs_of(flow.load_table(), "id > 5 and id < 10") == before == {0}
    assert 1 in specs_of(flow.load_table(), "id >= 2 and id < 6")
    assert_proven(flow)


def specs_of(table: Table, where: str) -> set[int]:
    return {task.file.spec_id for task in table.scan(row_filter=where).plan_files()}


def test_manifests_keep_the_sequence_numbers_of_files_that_stay(flow: Flow) -> None:
    """Rewritten together, all files lie in one manifest: it is written again, and only one file of it leaves."""
    table = flow.load_table()
    files = [task.file for task in table.scan().plan_files()]
    sequence = {e.data_file.file_path: e.sequence_number for e in live(table)}
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as together:
        for file in files[:1]:
            together.delete_data_file(file)
            together.append_data_file(file)
    sequence |= {e.data_file.file_path: e.sequence_number for e in live(flow.load_table())}
    replay(flow, part(flow, 2, 6))
    after = {e.data_file.file_path: e.sequence_number for e in live(flow.load_table())}
    assert {path: after[path] for path in sequence.keys() & after.keys()} == {
        path: sequence[path] for path in sequence.keys() & after.keys()
    }
    assert flow.ids() == list(range(30))


def live(table: Table) -> list[Any]:
    head = table.current_snapshot()
    assert head is not None
    return [entry for manifest in head.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]


def test_files_that_left_are_named_as_deleted_so_that_expiry_finds_them(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    table = flow.load_table()
    head = table.current_snapshot()
    assert head is not None
    entries = [e for m in head.manifests(table.io) for e in m.fetch_manifest_entry(table.io, discard_deleted=False)]
    deleted = [e for e in entries if e.status is ManifestEntryStatus.DELETED]
    assert [e.snapshot_id for e in deleted] == [head.snapshot_id]


def test_a_replay_after_a_replay_replaces_its_rows(flow: Flow, spark: SparkSession) -> None:
    replay(flow, part(flow, 0, 6))
    replay(flow, part(flow, 4, 12))
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))
    assert_proven(flow)


def test_a_roll_back_over_a_replay_is_refilled_or_accepted_and_never_committed_again(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    roll_back(flow, to=1)
    job = flow.events(DataComplete)[-1].batch_id
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, job)
    with flow.session() as session:
        session.bind()
        assert RangeJobs(session).refill(flow.table).rows == 10
    assert flow.ids() == list(range(30))
    assert_proven(flow)
    replay(flow, part(flow, 2, 6))
    # To the refill's snapshot: the rows that the replay replaced are there again.
    roll_back(flow, to=4)
    resolved(flow, "table-rolled-back", "accept")
    assert flow.ids() == list(range(30))
    assert_proven(flow, flow.table)


def test_a_table_created_again_gets_each_offset_once_after_a_replay(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    flow.recreate_table()
    with flow.session() as session:
        session.bind()
        RangeJobs(session).refill(flow.table)
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_the_proof_holds_after_a_trim(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    flow.produce(range(30, 35))
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert_proven(flow, flow.pipeline.control_topic)
    replay(flow, part(flow, 0, 4))
    assert flow.ids() == list(range(35))


@pytest.mark.parametrize("ranges", [((0, 10, 25),), ((7, 0, 1),), ((0, 15, 21),)], ids=["beyond", "unknown", "half"])
def test_ranges_that_were_not_published_are_refused(flow: Flow, ranges: tuple[tuple[int, int, int], ...]) -> None:
    wanted = [part(flow, start, end, partition) for partition, start, end in ranges]
    with raises(Code.NOT_PUBLISHED):
        replay(flow, *wanted)


def test_records_that_retention_took_refuse_a_replay_before_anything_is_written(flow: Flow) -> None:
    flow.delete_records(flow.topic, 3)
    events, files = len(flow.events(DataComplete)), sorted(flow.lake.rglob("*.parquet"))
    with raises(Code.GONE_FROM_KAFKA, "[0]", 3):
        replay(flow, part(flow, 2, 6))
    assert len(flow.events(DataComplete)) == events
    assert sorted(flow.lake.rglob("*.parquet")) == files


def test_a_topic_created_again_refuses_a_replay(flow: Flow) -> None:
    flow.recreate_topic(flow.topic, 2)
    flow.produce(range(100, 110))
    with raises(finding("topic-recreated")):
        replay(flow, part(flow, 2, 6))
    resolved(flow, "topic-recreated", "restart")
    flow.run()
    with raises(Code.TWO_TOPICS):
        replay(flow, part(flow, 2, 6))


def test_a_table_without_places_or_with_delete_files_is_refused(flow: Flow, spark: SparkSession) -> None:
    name = f"{flow.attached(spark)}.{flow.table}"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {name} WHERE id = 4").collect()
    with raises(Code.DELETE_FILES) as caught:
        replay(flow, part(flow, 2, 6))
    assert "rewrite_data_files" in caught.value.hint
    with flow.load_table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_kafka")
    with raises(Code.NO_KAFKA_COLUMN, "_kafka") as caught:
        replay(flow, part(flow, 2, 6))
    assert "kafka_column: true" in caught.value.hint


def test_a_compacted_topic_is_refused(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"cleanup.policy": "compact"}))
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 1, "text": "n1"}'], keys=["k"])
    flow.run()
    with raises(Code.COMPACTED, "cleanup.policy", "compact"):
        replay(flow, part(flow, 0, 1))

"""Rows of published ranges are replaced by what Kafka has of them, in one commit, whatever happens beside it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

import sink_core.control.publisher
from orchestration.broker import Broker
from sink_core.control.decision import Verdict
from sink_core.control.events import DataComplete, DataWritten
from sink_core.errors import CommitConflict, FindingError, TableUnusable
from sink_core.maintenance.give_up import give_up
from sink_core.maintenance.orphans import Listed, may_still_land, named_by_events
from sink_core.maintenance.trim import trim
from sink_core.offsets import OffsetRange
from sink_core.range_jobs.selected import Wanted
from sink_core.tables.manifests import entries_of
from sink_core.verify.verify import verify
from spark_jobs.range_job import REPLAYS, RangeJobs, RangeReport
from tests import support
from tests.damage import roll_back
from tests.pipelines import COLUMNS, Died, Flow, InProcess, reached
from tests.resolving import refused, resolved
from tests.support import TopicFactory

BAD = b'{"id": "not a number"}'
PARTITIONED = {"columns": COLUMNS, "partition_by": ["bucket(2, id)"]}


def filled(flow: Flow) -> Flow:
    """Three batches in the table, ids 0 to 29, the second with a dead letter and a tombstone."""
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20), partition=1)
    support.produce(flow.bootstrap, flow.topic, [BAD, None], partition=1)
    flow.run()
    flow.produce(range(20, 30))
    flow.run()
    return flow


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)))


def part(flow: Flow, start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(flow.topic, partition, start, end)


def replay(flow: Flow, *ranges: OffsetRange, **times: Any) -> RangeReport:
    with flow.session() as session:
        session.bind()
        return RangeJobs(session, InProcess()).replay(flow.table, Wanted(ranges=ranges, **times))


def assert_proven(flow: Flow, *not_checked: str) -> None:
    """Nothing is violated, and nothing but what is named could not be looked at."""
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.violations == ()
    assert [each.why for each in report.not_checked if not each.why.startswith(not_checked or ("nothing",))] == []
    assert set(report.uncommitted.values()) == {0}


FOREIGN = "the total number of rows"


def delete(flow: Flow, where: str) -> None:
    """Somebody deletes rows by hand: their data files are written again without them."""
    flow.load_table().delete(where)


def die() -> None:
    raise Died


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
    assert_proven(flow, FOREIGN)


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
    assert_proven(flow, FOREIGN)


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


def test_what_is_published_meanwhile_comes_with_the_replay(flow: Flow, spark: SparkSession) -> None:
    def more() -> None:
        flow.produce(range(30, 35))
        flow.publish()

    with reached("range.after-manifests", more):
        report = replay(flow, part(flow, 2, 6))
    assert report.commit is not None
    assert len(report.commit.batches) == 2
    assert (report.commit.rows, report.commit.total_rows) == (9, 35)
    assert flow.ids() == flow.spark_ids(spark) == list(range(35))
    assert_proven(flow)


def test_a_replay_that_died_before_its_commit_is_committed_by_any_run(flow: Flow) -> None:
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    flow.produce(range(30, 33))
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(33))
    assert flow.own_snapshots()[-2][1].replaced == {flow.events(DataWritten)[-3].batch_id: 4}
    assert_proven(flow)


def test_files_rewritten_by_others_before_its_commit_drop_the_replay_and_it_starts_again(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: delete(flow, "id = 7")):
        report = replay(flow, part(flow, 2, 6))
    assert report.verdict is Verdict.PUBLISH
    assert [e.replaces is not None for e in flow.events(DataWritten)[-2:]] == [True, True]
    assert flow.ids() == [i for i in range(30) if i != 7]
    flow.commit()
    replay(flow, part(flow, 7, 8))
    assert flow.ids() == list(range(30))
    assert_proven(flow, FOREIGN)


def test_a_dropped_replay_stays_dropped(flow: Flow) -> None:
    """The stored control offset passes it: whatever the table becomes again, it is not committed any more."""
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    before = flow.load_table().current_snapshot()
    assert before is not None
    delete(flow, "id = 7")
    (commit,) = (c for c in flow.commit().commits if c.table == flow.table)
    assert (commit.landed, commit.batches, commit.dropped) == (True, (), (flow.events(DataWritten)[-1].batch_id,))
    (commit,) = (c for c in flow.commit().commits if c.table == flow.table)
    assert not commit.landed
    assert flow.ids() == [i for i in range(30) if i != 7]


def test_a_replay_gives_up_when_others_rewrite_its_files_each_time(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = list(range(6, 6 + REPLAYS))

    def rewrite(place: str) -> None:
        if place == "publish.after-commit":
            delete(flow, f"id = {ids.pop()}")

    monkeypatch.setattr(sink_core.control.publisher, "reach", rewrite)
    with pytest.raises(CommitConflict, match="others rewrote the files that it was to replace"):
        replay(flow, part(flow, 2, 6))
    assert flow.ids() == [i for i in range(30) if not 6 <= i < 6 + REPLAYS]


def test_of_two_replays_planned_at_once_one_is_stale(flow: Flow) -> None:
    reports: list[RangeReport] = []
    with reached("range.after-manifests", lambda: reports.append(replay(flow, part(flow, 0, 5)))):
        late = replay(flow, part(flow, 2, 6))
    assert late.verdict is Verdict.STALE
    assert reports[0].verdict is Verdict.PUBLISH
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_giving_up_makes_a_replay_stale(flow: Flow) -> None:
    def give_up_all() -> None:
        with flow.session() as session:
            session.bind()
            give_up(session)

    with reached("replay.after-files", give_up_all):
        assert replay(flow, part(flow, 2, 6)).verdict is Verdict.STALE
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_a_replay_after_a_replay_replaces_its_rows(flow: Flow, spark: SparkSession) -> None:
    replay(flow, part(flow, 0, 6))
    replay(flow, part(flow, 4, 12))
    assert flow.ids() == flow.spark_ids(spark) == list(range(30))
    assert_proven(flow)


def test_a_roll_back_before_its_commit_drops_the_replay(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: roll_back(flow, to=1)), pytest.raises(FindingError, match="rolled"):
        replay(flow, part(flow, 2, 6))
    resolved(flow, "table-rolled-back", "accept")
    flow.produce(range(30, 32))
    flow.run()
    assert flow.ids() == [*range(20), 30, 31]
    assert_proven(flow, "1 batches (10 rows): given up")
    with pytest.raises(TableUnusable, match="given up by an answer to a finding"):
        replay(flow, part(flow, 10, 20))


def test_a_refill_leaves_a_replay_out_that_was_written_for_the_table_before(flow: Flow) -> None:
    with reached("publish.after-commit", lambda: roll_back(flow, to=1)), pytest.raises(FindingError, match="rolled"):
        replay(flow, part(flow, 2, 6))
    with flow.session() as session:
        session.bind()
        assert RangeJobs(session, InProcess()).refill(flow.table).rows == 10
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_a_roll_back_over_a_replay_is_refilled_or_accepted_and_never_committed_again(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    roll_back(flow, to=1)
    refused(flow, "table-rolled-back", "recommit", "replaced rows of a table that is not there any more")
    with flow.session() as session:
        session.bind()
        assert RangeJobs(session, InProcess()).refill(flow.table).rows == 10
    assert flow.ids() == list(range(30))
    assert_proven(flow)
    replay(flow, part(flow, 2, 6))
    # To the refill's snapshot: the rows that the replay replaced are there again.
    roll_back(flow, to=4)
    resolved(flow, "table-rolled-back", "accept")
    assert flow.ids() == list(range(30))
    assert_proven(flow, "1 batches (4 rows): given up")


def test_a_table_created_again_gets_each_offset_once_after_a_replay(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    flow.recreate_table()
    with flow.session() as session:
        session.bind()
        RangeJobs(session, InProcess()).refill(flow.table)
    assert flow.ids() == list(range(30))
    assert_proven(flow)


def test_the_proof_holds_after_a_trim(flow: Flow) -> None:
    replay(flow, part(flow, 2, 6))
    flow.produce(range(30, 35))
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert_proven(flow, "2 batches against their events", "3 batches against", "4 batches against")
    replay(flow, part(flow, 0, 4))
    assert flow.ids() == list(range(35))


def test_files_of_a_replay_on_its_way_are_no_orphans(flow: Flow) -> None:
    with pytest.raises(Died), reached("publish.after-commit", die):
        replay(flow, part(flow, 2, 6))
    event = flow.events(DataWritten)[-1]
    assert event.replaces is not None
    io = flow.load_table().io
    refs = [*event.manifests, *event.replaces.kept, *event.replaces.gone]
    files = {entry.data_file.file_path for ref in refs for entry in entries_of(io, ref)}
    with flow.session() as session:
        session.bind()
        named = named_by_events(session.log.state, flow.table, io)
    assert {ref.path for ref in refs} | files <= named
    with pytest.raises(Died), reached("commit.after-list", die):
        flow.commit()
    (again,) = (p for p in flow.lake.rglob("*.avro") if "-without-" in p.name)
    listed = Listed(f"file://{again}", again.stat().st_size, 0)
    assert may_still_land(listed, flow.load_table())
    flow.commit()
    assert not may_still_land(listed, flow.load_table())
    assert flow.ids() == list(range(30))


@pytest.mark.parametrize("ranges", [((0, 10, 25),), ((7, 0, 1),), ((0, 15, 21),)], ids=["beyond", "unknown", "half"])
def test_ranges_that_were_not_published_are_refused(flow: Flow, ranges: tuple[tuple[int, int, int], ...]) -> None:
    wanted = [part(flow, start, end, partition) for partition, start, end in ranges]
    with pytest.raises(TableUnusable, match="not published for"):
        replay(flow, *wanted)


def test_records_that_retention_took_refuse_a_replay_before_anything_is_written(flow: Flow) -> None:
    flow.delete_records(flow.topic, 3)
    events, files = len(flow.events(DataComplete)), sorted(flow.lake.rglob("*.parquet"))
    with pytest.raises(TableUnusable, match=r"\[0\] \[2, 3\): retention has deleted"):
        replay(flow, part(flow, 2, 6))
    assert len(flow.events(DataComplete)) == events
    assert sorted(flow.lake.rglob("*.parquet")) == files


def test_a_topic_created_again_refuses_a_replay(flow: Flow) -> None:
    flow.recreate_topic(flow.topic, 2)
    flow.produce(range(100, 110))
    with pytest.raises(FindingError, match="topic-recreated"):
        replay(flow, part(flow, 2, 6))
    resolved(flow, "topic-recreated", "restart")
    flow.run()
    with pytest.raises(TableUnusable, match="stands for records of two topics"):
        replay(flow, part(flow, 2, 6))


def test_a_table_without_places_or_with_delete_files_is_refused(flow: Flow, spark: SparkSession) -> None:
    name = f"{flow.attached(spark)}.{flow.table}"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {name} WHERE id = 4").collect()
    with pytest.raises(TableUnusable, match="has delete files") as caught:
        replay(flow, part(flow, 2, 6))
    assert "rewrite_data_files" in caught.value.hint
    with flow.load_table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_kafka")
    with pytest.raises(TableUnusable, match="has no column _kafka") as caught:
        replay(flow, part(flow, 2, 6))
    assert "kafka_column: true" in caught.value.hint


def test_row_deletes_by_others_before_its_commit_drop_the_replay(flow: Flow, spark: SparkSession) -> None:
    """The rows that they delete would come back in the rewritten file."""
    name = f"{flow.attached(spark)}.{flow.table}"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")

    def delete_a_row() -> None:
        spark.sql(f"DELETE FROM {name} WHERE id = 7").collect()

    with reached("publish.after-commit", delete_a_row), pytest.raises(TableUnusable, match="has delete files"):
        replay(flow, part(flow, 2, 6))
    assert flow.spark_ids(spark) == [i for i in range(30) if i != 7]


def test_a_compacted_topic_is_refused(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"cleanup.policy": "compact"}))
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 1, "text": "n1"}'], keys=["k"])
    flow.run()
    with pytest.raises(TableUnusable, match=r"cleanup\.policy is compact"):
        replay(flow, part(flow, 0, 1))

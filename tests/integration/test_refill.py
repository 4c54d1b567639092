"""What a table lacks is read again from Kafka, once, on a real log and catalog, and the proof holds after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.events import Paused
from calve.sink_core.control.trim import trim
from calve.sink_core.errors import FindingError
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.range_jobs.jobs import RangeJobs, RangeReport
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests.codes import finding, raises
from tests.damage import (
    Break,
    drop_the_table,
    remove_tag,
    restore_the_catalog,
    restore_the_catalog_from_before_the_first_commit,
    roll_back,
)
from tests.integration.range_jobs import assert_unviolated, filled, proof, refill
from tests.pipelines import Died, Flow, reached
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)))


@pytest.mark.parametrize(
    ("damage", "finding", "again"),
    [
        (roll_back, "table-rolled-back", {10, 11, 12, 19, 20, 29}),
        (restore_the_catalog, "table-restored", {20, 29}),
        (restore_the_catalog_from_before_the_first_commit, "table-restored", {0, 9, 10, 19, 20, 29}),
        (remove_tag, "tag-removed", set()),
        (Flow.recreate_table, "table-recreated", {0, 9, 10, 19, 20, 29}),
        (drop_the_table, "table-dropped", {0, 9, 10, 19, 20, 29}),
    ],
    ids=["rolled back", "restored", "restored to the beginning", "tag removed", "recreated", "dropped"],
)
def test_a_refill_reads_exactly_what_was_lost_and_resolves_the_finding(
    flow: Flow, damage: Break, finding: str, again: set[int]
) -> None:
    damage(flow)
    with pytest.raises(FindingError, match=finding):
        flow.run()
    report = refill(flow)
    assert report.verdict is Verdict.PUBLISH
    assert report.commit is not None
    assert report.commit.batches == (report.batch_id,)
    assert report.rows == report.commit.rows
    assert again <= set(flow.ids())
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)
    flow.produce(range(30, 35))
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(35))
    assert_unviolated(flow)


def test_a_refill_moves_no_position_and_reads_only_the_ranges_of_lost_batches(flow: Flow) -> None:
    flow.produce(range(30, 40))
    positions = flow.positions()
    roll_back(flow, to=1)
    report = refill(flow)
    assert report.ranges == ((flow.topic, 0, 10, 20),)
    assert report.rows == 10
    assert flow.positions() == positions
    assert flow.ids() == list(range(30))


def test_a_second_refill_has_nothing_to_do(flow: Flow) -> None:
    roll_back(flow)
    refill(flow)
    before = flow.load_table().metadata_location
    report = refill(flow)
    assert (report.batch_id, report.verdict) == ("", None)
    assert flow.table in report.ended
    assert flow.load_table().metadata_location == before


def test_a_second_roll_back_before_its_commit_drops_the_refill(flow: Flow) -> None:
    """Its batches are not all that is lost any more."""
    roll_back(flow, to=1)
    with reached("publish.after-commit", lambda: roll_back(flow)), raises(finding("table-rolled-back")):
        refill(flow)
    with raises(finding("table-rolled-back")):
        flow.run()
    assert flow.ids() == list(range(10))
    refill(flow)
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)


def test_rows_put_back_by_hand_before_its_commit_drop_the_refill(flow: Flow) -> None:
    """Cherry-picked, the second batch is there again; the refill has it too."""

    def pick() -> None:
        table = flow.load_table()
        cherry_pick(table, flow.own_snapshots()[1][0])

    roll_back(flow)
    with reached("publish.after-commit", pick), raises(finding("table-rolled-back")):
        refill(flow)
    assert flow.ids() == list(range(20))
    report = refill(flow)
    assert report.rows == 10
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)


def cherry_pick(table: Table, snapshot_id: int) -> None:
    """What Spark's `cherrypick_snapshot` does: an append of the same files that says where it comes from."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    added = [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties={"source-snapshot-id": str(snapshot_id)})
        with update.fast_append() as append:
            for file in added:
                append.append_data_file(file)


def test_a_finding_that_is_gone_drops_the_refill(flow: Flow) -> None:
    tagged = flow.own_snapshots()[-1][0]

    def forward() -> None:
        flow.load_table().manage_snapshots().set_current_snapshot(snapshot_id=tagged).commit()

    roll_back(flow)
    with reached("publish.after-commit", forward):
        report = refill(flow)
    assert report.verdict is Verdict.PUBLISH
    assert report.commit is not None
    assert not report.commit.landed
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)
    roll_back(flow, to=1)
    refill(flow)
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)


def test_of_two_refills_planned_at_once_one_is_stale(flow: Flow) -> None:
    roll_back(flow)
    reports: list[RangeReport] = []
    with reached("range.after-manifests", lambda: reports.append(refill(flow))):
        late = refill(flow)
    assert late.verdict is Verdict.STALE
    assert reports[0].verdict is Verdict.PUBLISH
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)


def test_giving_up_makes_a_refill_stale(flow: Flow) -> None:
    """Orphan removal may delete its files."""

    def give_up_all() -> None:
        with flow.session() as session:
            session.bind()
            assert len(session.publisher.give_up().batch_ids) == 1

    roll_back(flow)
    with reached("range.after-manifests", give_up_all):
        report = refill(flow)
    assert report.verdict is Verdict.STALE
    assert report.batch_id in report.ended
    assert flow.ids() == list(range(10))
    assert refill(flow).verdict is Verdict.PUBLISH
    assert_unviolated(flow)


def test_what_is_published_meanwhile_comes_with_the_refill(flow: Flow) -> None:
    """A batch that was written before the roll back is published after the refill was planned."""
    flow.produce(range(30, 35))

    def refill_with_a_batch_in_between() -> None:
        roll_back(flow)

    with (
        reached("publish.after-commit", refill_with_a_batch_in_between),
        raises(finding("table-rolled-back")),
    ):
        flow.run()
    report = refill(flow)
    assert report.commit is not None
    assert len(report.commit.batches) == 2
    assert report.rows == 20
    assert flow.ids() == list(range(35))
    assert_unviolated(flow)


def test_a_batch_of_the_old_table_published_after_the_refill_keeps_the_finding(flow: Flow) -> None:
    """A run that wrote for the table that is gone publishes after the refill: its rows are lost as well."""
    flow.produce(range(30, 35))

    def recreate_and_refill() -> None:
        flow.recreate_table()
        with pytest.raises(Died), reached("publish.after-commit", _die):
            refill(flow)

    with reached("write.after-manifests", recreate_and_refill), raises(finding("table-recreated")):
        flow.run()
    report = refill(flow)
    assert report.verdict is Verdict.PUBLISH
    assert flow.ids() == list(range(35))
    assert_unviolated(flow)


def _die() -> None:
    raise Died


def test_a_refill_that_died_before_its_commit_is_committed_by_any_run(flow: Flow) -> None:
    roll_back(flow)
    with pytest.raises(Died), reached("publish.after-commit", _die):
        refill(flow)
    assert flow.run().ended == "caught up"
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)


def test_the_proof_is_violated_where_a_refill_lacks_rows(flow: Flow) -> None:
    roll_back(flow)
    refill(flow)
    flow.load_table().delete("id = 15")
    kinds = {violation.kind for violation in proof(flow).violations}
    assert "range-rows" in kinds


def test_records_that_retention_took_refuse_a_refill_before_anything_is_written(flow: Flow) -> None:
    flow.delete_records(flow.topic, 15)
    roll_back(flow, to=1)
    events, files = len(flow.events(DataComplete)), sorted(flow.lake.rglob("*.parquet"))
    with raises(Code.GONE_FROM_KAFKA, "[0]", 15) as caught:
        refill(flow)
    assert caught.value.exit_code == 1
    assert len(flow.events(DataComplete)) == events
    assert sorted(flow.lake.rglob("*.parquet")) == files


def test_a_refill_after_a_trim_reads_what_the_log_forgot(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        trim(session, older_than_s=0)
    flow.recreate_table()
    refill(flow)
    assert flow.ids() == list(range(30))
    assert_unviolated(flow)
    flow.produce(range(30, 33))
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert_unviolated(flow)


def test_a_roll_back_to_before_the_trim_can_t_be_refilled(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        trim(session, older_than_s=0)
    roll_back(flow)
    with raises(Code.UNKNOWN_LOSS):
        refill(flow)


def test_a_record_that_the_new_table_can_t_take_stops_the_refill(flow: Flow) -> None:
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.table)
    narrow = flow.but(auto_create={"columns": {"id": "long", "text": "boolean"}})
    with raises(Code.BAD_RECORD, 0):
        refill(narrow)


@pytest.mark.parametrize("table", ["ledger", "dead_letters"])
def test_tables_whose_rows_are_not_in_kafka_can_t_be_refilled(flow: Flow, table: str) -> None:
    with raises(Code.NOT_FROM_KAFKA):
        refill(flow, f"calve.{flow.name}_{table}")


def test_a_paused_pipeline_reads_nothing_again(flow: Flow) -> None:
    roll_back(flow)
    with flow.session() as session:
        session.bind()
        session.log.append(Paused(pipeline_id=session.pipeline_id, by="ana", reason="moving"))
        report = RangeJobs(session).refill(flow.table)
    assert ("ana" in report.ended, "moving" in report.ended, report.commit) == (True, True, None)
    assert flow.ids() == list(range(10))


def test_a_refill_names_what_it_resolves(flow: Flow) -> None:
    own = flow.own_snapshots()
    roll_back(flow)
    refill(flow)
    event = flow.events(DataWritten)[-1]
    assert event.resolves is not None
    assert event.resolves.finding == "table-rolled-back"
    assert event.resolves.tagged_snapshot_id == own[-1][0]
    assert event.resolves.base_snapshot_id == own[0][0]
    assert event.resolves.covers_offset == own[-1][1].stored_offset
    token = TopicPartition(flow.pipeline.control_topic, 0)
    with flow.session() as session:
        assert session.group.positions([token])[token].metadata == event.batch_id

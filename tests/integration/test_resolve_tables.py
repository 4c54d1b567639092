"""Findings on tables answered by `calve resolve`: accept and recommit, their refusals, and who else is at work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Resolved
from calve.sink_core.control.trim import trim
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests import damage
from tests.codes import finding, raises
from tests.pipelines import Flow, reached, tagged
from tests.resolving import numbers, refused, resolve, resolved, run_and_prove
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its table and records waiting."""
    return damage.with_two_batches(tmp_path, broker, kafka_topic(2))


LOST = [
    (damage.roll_back, "table-rolled-back"),
    (damage.restore_the_catalog, "table-restored"),
]
"""What takes the second batch out of the table."""

NOTHING_LEFT = [
    (damage.restore_the_catalog_from_before_the_first_commit, "table-restored"),
    (Flow.recreate_table, "table-recreated"),
    (damage.drop_the_table, "table-dropped"),
]


@pytest.mark.parametrize(("break_it", "finding"), LOST, ids=damage.name)
def test_accept_goes_on_without_the_rows(flow: Flow, break_it: damage.Break, finding: str) -> None:
    break_it(flow)
    said = resolved(flow, finding, "accept")
    assert numbers(said["does"][0], flow.table)[-2:] == [10, 1]
    # The next run commits what came since, and the one after it finds nothing to say.
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *range(20, 30)]
    assert [e.choice for e in flow.events(Resolved)] == ["accept"]
    flow.produce(range(30, 40))
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *range(20, 40)]


def test_refill_reads_again_what_was_lost(flow: Flow) -> None:
    break_it, finding = LOST[0]
    break_it(flow)
    said = resolved(flow, finding, "refill")
    assert {"10", flow.events(DataComplete)[-1].batch_id} <= {*said["done"][0].split()}
    run_and_prove(flow)
    assert flow.ids() == list(range(30))
    assert [e.choice for e in flow.events(Resolved)] == ["refill"]


@pytest.mark.parametrize(("break_it", "finding"), NOTHING_LEFT, ids=damage.name)
def test_accept_begins_anew_with_a_table_that_has_nothing(flow: Flow, break_it: damage.Break, finding: str) -> None:
    break_it(flow)
    said = resolved(flow, finding, "accept")
    assert "20" in said["does"][0].split()
    run_and_prove(flow)
    assert flow.ids() == list(range(20, 30))


def test_accept_after_a_lost_tag_loses_nothing(flow: Flow) -> None:
    damage.remove_tag(flow)
    resolved(flow, "tag-removed", "accept")
    assert tagged(flow, flow.load_table()) == flow.own_snapshots()[-1][0]
    assert [own.given_up for _, own in flow.own_snapshots()] == [(), (), ()]
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        *LOST,
        (damage.restore_the_catalog_from_before_the_first_commit, "table-restored"),
        (damage.remove_tag, "tag-removed"),
    ],
    ids=damage.name,
)
def test_recommit_appends_exactly_what_is_lost(flow: Flow, break_it: damage.Break, finding: str) -> None:
    batches = {event.batch_id for event in flow.events(DataWritten) if event.table == flow.table}
    break_it(flow)
    resolved(flow, finding, "recommit")
    assert flow.ids() == list(range(20))
    assert {batch for _, own in flow.own_snapshots() for batch in own.batches} == batches
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_recommit_keeps_what_others_appended_after_the_roll_back(flow: Flow) -> None:
    damage.roll_back(flow)
    flow.append_foreign(1000)
    resolved(flow, "table-rolled-back", "recommit")
    run_and_prove(flow)
    assert flow.ids() == [*range(30), 1000]


def test_recommit_is_refused_when_a_file_is_gone(flow: Flow) -> None:
    damage.roll_back(flow)
    manifest = [e for e in flow.events(DataWritten) if e.table == flow.table][-1].manifests[0].path
    Path(manifest.removeprefix("file://")).unlink()
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, manifest, "accept", "refill")


def test_recommit_is_refused_when_a_data_file_is_gone(flow: Flow) -> None:
    (path, *_) = (task.file.file_path for task in flow.load_table().scan("id = 10").plan_files())
    damage.roll_back(flow)
    Path(path.removeprefix("file://")).unlink()
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, path)
    assert flow.ids() == list(range(10))


def test_recommit_is_refused_when_somebody_put_the_files_back_himself(flow: Flow) -> None:
    table = flow.load_table()
    lost = [task.file.file_path for task in table.scan().plan_files()]
    damage.roll_back(flow)
    kept = {task.file.file_path for task in flow.load_table().scan().plan_files()}
    [again] = (path for path in lost if path not in kept)
    flow.load_table().add_files([again])
    refused(flow, "table-rolled-back", "recommit", Code.NOT_POSSIBLE, again)
    assert flow.ids() == list(range(20))


def test_rows_that_were_given_up_do_not_come_back_by_a_later_recommit(flow: Flow) -> None:
    damage.roll_back(flow)
    resolved(flow, "table-rolled-back", "accept")
    flow.run()
    damage.roll_back(flow)
    resolved(flow, "table-rolled-back", "recommit")
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *range(20, 30)]


def test_an_append_between_check_and_swap_is_seen_by_the_next_attempt(flow: Flow) -> None:
    damage.roll_back(flow)

    with reached("resolve.after-list", lambda: flow.append_foreign(1000)):
        resolved(flow, "table-rolled-back", "recommit")
    run_and_prove(flow)
    assert flow.ids() == [*range(30), 1000]


@pytest.mark.parametrize("choice", ["accept", "recommit"])
def test_two_answers_at_once_are_one(flow: Flow, choice: str) -> None:
    damage.roll_back(flow)
    answer = ("table-rolled-back", "--choose", choice, "--yes")
    codes: list[int] = []
    with reached("resolve.after-list", lambda: codes.append(resolve(flow, *answer).exit_code)):
        first = resolve(flow, *answer)
    assert (first.exit_code, codes) == (0, [0]), first.output
    run_and_prove(flow)
    assert flow.ids() == [*range(10), *(range(10, 20) if choice == "recommit" else ()), *range(20, 30)]


def test_a_run_with_the_old_table_in_hand_is_found_by_the_next(flow: Flow) -> None:
    """It publishes files for the table that was recreated and answered for meanwhile; these are given up in turn."""

    def recreate_and_accept() -> None:
        flow.recreate_table()
        resolved(flow, "table-recreated", "accept")

    with reached("publish.after-fence", recreate_and_accept), raises(finding("table-recreated")):
        flow.run()
    resolved(flow, "table-recreated", "accept")
    flow.produce(range(30, 40))
    run_and_prove(flow)
    assert flow.ids() == list(range(30, 40))


def test_the_ledger_can_not_be_given_up(flow: Flow) -> None:
    ledger = flow.load_table(flow.pipeline.ledger_table)
    ledger.manage_snapshots().rollback_to_snapshot(ledger.metadata.snapshots[0].snapshot_id).commit()
    refused(flow, "table-rolled-back", "accept", Code.NO_SUCH_CHOICE, "recommit")
    resolved(flow, "table-rolled-back", "recommit")
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_spark_reads_what_the_answers_wrote(flow: Flow, spark: SparkSession) -> None:
    flow.recreate_table()
    resolved(flow, "table-recreated", "accept")
    assert flow.spark_ids(spark) == []
    flow.run()
    flow.load_table().manage_snapshots().rollback_to_snapshot(flow.own_snapshots()[0][0]).commit()
    resolved(flow, "table-rolled-back", "recommit")
    assert flow.spark_ids(spark) == list(range(20, 30))


def recreate_the_ledger(flow: Flow) -> None:
    """With its columns in another order: field ids differ from those in the files."""
    ledger = flow.pipeline.ledger_table
    fields = flow.load_table(ledger).schema().fields
    drop_the_ledger(flow)
    with flow.iceberg() as catalog:
        catalog.create_table(ledger, Schema(*reversed(fields)))


def drop_the_ledger(flow: Flow) -> None:
    with flow.iceberg() as catalog:
        catalog.drop_table(flow.pipeline.ledger_table)


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [(recreate_the_ledger, "table-recreated"), (drop_the_ledger, "table-dropped")],
    ids=damage.name,
)
def test_a_ledger_that_is_gone_is_written_again(flow: Flow, break_it: damage.Break, finding: str) -> None:
    flow.publish()
    before = flow.rows(flow.pipeline.ledger_table)
    break_it(flow)
    resolved(flow, finding, "rebuild")
    again = flow.rows(flow.pipeline.ledger_table)
    assert sorted(row["end_offset"] for row in again) == [10, 20, 30]
    assert all(row in again for row in before)
    run_and_prove(flow)
    assert flow.ids() == list(range(30))


def test_a_ledger_written_again_that_loses_its_tag_has_each_row_once(flow: Flow) -> None:
    name, before = flow.pipeline.ledger_table, flow.rows(flow.pipeline.ledger_table)
    drop_the_ledger(flow)
    resolved(flow, "table-dropped", "rebuild")
    flow.load_table(name).manage_snapshots().remove_tag(flow.pipeline.tag).commit()
    resolved(flow, "table-recreated", "rebuild")
    assert sorted(row["end_offset"] for row in flow.rows(name)) == sorted(row["end_offset"] for row in before)
    run_and_prove(flow)


def test_a_ledger_that_somebody_else_writes_again_meanwhile_has_each_row_once(flow: Flow) -> None:
    before = flow.rows(flow.pipeline.ledger_table)
    drop_the_ledger(flow)

    def answered_by_another() -> None:
        resolved(flow, "table-recreated", "rebuild")
        flow.run()

    with reached("resolve.after-create", answered_by_another):
        done = resolved(flow, "table-dropped", "rebuild")
    [line] = done["done"]
    assert flow.pipeline.ledger_table in line
    rows = [(row["batch_id"], row["partition"]) for row in flow.rows(flow.pipeline.ledger_table)]
    assert len(rows) == len(set(rows)) == len(before) + 1
    run_and_prove(flow)


def test_a_ledger_whose_files_are_gone_is_not_begun_anew(flow: Flow) -> None:
    tasks = flow.load_table(flow.pipeline.ledger_table).scan().plan_files()
    files = [Path(task.file.file_path.removeprefix("file://")) for task in tasks]
    recreate_the_ledger(flow)
    for path in files:
        path.unlink()
    refused(flow, "table-recreated", "rebuild", Code.NOT_POSSIBLE, *files)


def test_a_ledger_is_not_rebuilt_from_a_trimmed_log(flow: Flow) -> None:
    flow.run()
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    drop_the_ledger(flow)
    refused(flow, "table-dropped", "rebuild", Code.NOT_POSSIBLE, flow.pipeline.ledger_table)


def test_a_dropped_table_that_the_file_does_not_name_any_more_is_not_created(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    both = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), tables=("db.events", "db.other"))
    both.produce(range(10))
    both.run()
    with both.iceberg() as catalog:
        catalog.drop_table("db.other")
    refused(both.but(tables=("db.events",)), "table-dropped", "accept", Code.NOT_POSSIBLE, "db.other")
    resolved(both, "table-dropped", "accept")
    both.produce(range(10, 20))
    run_and_prove(both)
    assert (both.ids(), both.ids("db.other")) == (list(range(20)), list(range(10, 20)))

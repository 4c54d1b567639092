"""What an operator does by Dagster's jobs, and what their runs then show: no shell, no pipeline file at hand."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.names import PAUSE, PAUSED_TAG, POSITIONS, RESOLVE, RESUME, VERIFY, job_name
from calve.orchestration.dagster.sink.names import DEAD_LETTERS, REPLAY, REPLAY_DEAD_LETTERS, REPLAY_HOURS, table_key
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Paused, Resolved, Resumed
from calve.sink_core.tables.log.events import DataComplete, StartCommit
from tests import hudi_tables, support
from tests.codes import says
from tests.dagster_runs import Done, run
from tests.pipelines import Flow
from tests.support import TopicFactory

HOUR = "%Y-%m-%d-%H:00"
HUDI = hudi_tables.NAMES[1]
OPERATIONS = (PAUSE, RESUME, RESOLVE, VERIFY, POSITIONS, REPLAY, REPLAY_HOURS, DEAD_LETTERS)


@pytest.fixture(scope="module")
def instance() -> Generator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), spark={"master": "local[1]"})
    flow.produce(range(10))
    flow.run()
    return flow


def this_hour(flow: Flow) -> datetime:
    """The hour in which the last batch was planned, by the ledger."""
    [planned] = {row["planned_at"] for row in flow.rows(flow.pipeline.ledger_table) if row["records"]}
    return planned.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def remedy(done: Done) -> str:
    return done.failure.user_failure_data.metadata["what to do"].value


def test_every_field_of_every_job_is_described_and_its_editor_opens_with_what_runs(flow: Flow) -> None:
    defs = build_pipeline_defs(flow.pipeline)
    for stage in OPERATIONS:
        job = defs.resolve_job_def(job_name(flow.pipeline, stage))
        [node] = job.nodes
        fields = getattr(node.definition.config_field.config_type, "fields", {})
        assert [name for name, field in fields.items() if not field.description] == []
        assert job.description
        assert dg.validate_run_config(job, job.run_config), "what its editor opens with"
        assert all(out.dagster_type.is_nothing for out in node.definition.output_defs)


def test_a_pause_made_in_dagster_holds_every_host_and_a_resume_ends_it(flow: Flow, instance: DagsterInstance) -> None:
    paused = run(flow, instance, PAUSE, reason="a look at the data", wait=True)
    [event] = flow.events(Paused)
    assert (event.by, event.reason) == (f"dagster run {paused.result.run_id}", "a look at the data")
    assert paused.output["reason"] == "a look at the data"
    assert not any(batch.batch_id in paused.output["given up"] for batch in flow.events(StartCommit))
    flow.produce(range(10, 15))
    assert event.by in flow.run().ended
    assert flow.ids() == list(range(10))
    assert run(flow, instance, PAUSE, reason="again").output["reason"] == "a look at the data"
    assert len(flow.events(Paused)) == 1
    resumed = run(flow, instance, RESUME)
    assert event.by in resumed.output["did"]
    assert len(flow.events(Resumed)) == 1
    flow.run()
    assert flow.ids() == list(range(15))
    assert event.by not in run(flow, instance, RESUME).output["did"], "there was no pause any more"


def test_a_finding_is_shown_with_what_each_choice_would_do_and_answered(flow: Flow, instance: DagsterInstance) -> None:
    assert run(flow, instance, RESOLVE).output == {"findings": 0}
    flow.produce(range(10, 20))
    flow.run()
    first = flow.load_table().metadata.snapshots[0].snapshot_id
    flow.load_table().manage_snapshots().rollback_to_snapshot(first).commit()
    head = flow.load_table().metadata_location
    shown = run(flow, instance, RESOLVE)
    assert shown.output["findings"] == 1
    choices = {record["choice"]: record for record in shown.records("choices")}
    assert {"refill", "accept", "recommit"} <= choices.keys()
    assert {record["finding"] for record in choices.values()} == {"table-rolled-back"}
    assert all(record["would"] and record["stored"] and record["found"] for record in choices.values())
    assert flow.load_table().metadata_location == head, "nothing was changed"
    wrong = run(flow, instance, RESOLVE, finding="table-rolled-back", choice="nonsense")
    says(str(wrong.failure), Code.NO_SUCH_CHOICE, "table-rolled-back", "nonsense", *choices)
    says(str(run(flow, instance, RESOLVE, choice="accept").failure), Code.OPTION, "finding", "choice")
    done = run(flow, instance, RESOLVE, finding="table-rolled-back", subject=flow.table, choice="recommit")
    assert (done.output["choice"], done.output["subject"]) == ("recommit", flow.table)
    [event] = flow.events(Resolved)
    assert (event.choice, event.by) == ("recommit", f"dagster run {done.result.run_id}")
    assert flow.ids() == list(range(20))
    assert run(flow, instance, VERIFY, deep=True).output["proven"] is True


def test_a_proof_that_fails_is_a_red_run_with_its_violations(flow: Flow, instance: DagsterInstance) -> None:
    proven = run(flow, instance, VERIFY)
    assert proven.checks[flow.pipeline.ledger_table.replace(".", "/"), "proof"].passed
    assert proven.output["since"].startswith("20")
    flow.load_table().delete("id = 3")
    violated = run(flow, instance, VERIFY, deep=True)
    assert not violated.result.success
    assert not violated.checks[flow.pipeline.ledger_table.replace(".", "/"), "proof"].passed
    [violation] = violated.failure.user_failure_data.metadata["violations"].records
    assert (violation.data["kind"], violation.data["subject"]) == ("range-rows", flow.table)


def test_the_positions_are_shown_and_exported(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(10, 13))
    done = run(flow, instance, POSITIONS)
    places = {record["partition"]: record for record in done.records("positions")}
    assert {at: place["position"] for at, place in places.items()} == {
        at.partition: position.offset for at, position in flow.positions().items()
    }
    assert sum(place["pending"] for place in places.values()) == done.output["pending records"] == 3
    assert done.output["export"]["pipeline"] == flow.name


def test_a_span_is_shown_before_it_is_replaced(flow: Flow, instance: DagsterInstance) -> None:
    head = flow.load_table().metadata_location
    shown = run(flow, instance, REPLAY, table=flow.table, from_time="1h")
    assert (shown.output["offsets"], shown.output["rows to replace"]) == (10, 10)
    assert flow.load_table().metadata_location == head
    done = run(flow, instance, REPLAY, table=flow.table, from_time="1h", preview=False)
    assert (done.output["rows"], done.output["rows replaced"]) == (10, 10)
    [told] = done.table()
    assert done.output["snapshots"] == [told["snapshot id"]]
    assert sorted(row["text"] for row in flow.rows()) == sorted(f"n{i}" for i in range(10))


def test_hours_are_replayed_each_in_a_commit_and_an_empty_one_is_green(flow: Flow, instance: DagsterInstance) -> None:
    hour = this_hour(flow)
    before = len(flow.own_snapshots())
    done = run(flow, instance, REPLAY_HOURS, hour=hour.strftime(HOUR))
    assert done.result.success
    assert (done.output["rows"], done.output["rows replaced"]) == (10, 10)
    [told] = done.table()
    assert told["replayed hour"] == hour.strftime(HOUR)
    assert len(flow.own_snapshots()) == before + 1
    empty = run(flow, instance, REPLAY_HOURS, hour=(hour - timedelta(hours=5)).strftime(HOUR))
    assert empty.result.success
    assert (empty.output["offsets"], list(empty.materialized)) == (0, [])
    assert len(flow.events(DataComplete)) == 3, "the bootstrap, the batch, the one hour"
    assert flow.ids() == list(range(10))


def test_what_an_hour_published_and_nobody_committed_yet_is_committed_and_replayed(
    flow: Flow, instance: DagsterInstance
) -> None:
    flow.produce(range(10, 15))
    flow.publish()
    hour, head = this_hour(flow).strftime(HOUR), flow.load_table().metadata_location
    run(flow, instance, PAUSE, reason="a look at the data")
    held = [run(flow, instance, REPLAY_HOURS, hour=hour), run(flow, instance, REPLAY, table=flow.table, preview=False)]
    held.append(run(flow, instance, REPLAY_DEAD_LETTERS))
    assert flow.load_table().metadata_location == head
    [event] = flow.events(Paused)
    assert all(event.by in done.output["ended"] for done in held)
    runs = [instance.get_run_by_id(done.result.run_id) for done in held]
    assert all(done is not None and "a look at the data" in done.tags[PAUSED_TAG] for done in runs)
    run(flow, instance, RESUME)
    done = run(flow, instance, REPLAY_HOURS, hour=hour)
    assert done.result.success
    assert (done.output["rows"], done.output["rows replaced"]) == (15, 15)
    assert flow.ids() == list(range(15))


def test_an_hour_that_kafka_no_longer_has_is_refused_before_any_table_is_touched(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, instance: DagsterInstance
) -> None:
    held, gone = kafka_topic(1), kafka_topic(1)
    columns = {"auto_create": {"columns": {"id": "long", "text": "string"}}}
    tables = [{"name": "db.held", "topics": [held], **columns}, {"name": "db.gone", "topics": [gone], **columns}]
    flow = Flow.create(tmp_path, broker.bootstrap, held, gone, tables=("db.held", "db.gone"), extra={"tables": tables})
    flow.produce(range(5), topic=held)
    flow.produce(range(5, 10), topic=gone)
    flow.run()
    flow.delete_records(gone, 3)
    before = [flow.load_table(name).metadata_location for name in flow.tables]
    refused = run(flow, instance, REPLAY_HOURS, hour=this_hour(flow).strftime(HOUR))
    says(str(refused.failure), Code.GONE_FROM_KAFKA, f"{gone}[0] [0, 3)")
    assert [flow.load_table(name).metadata_location for name in flow.tables] == before


def test_dead_letters_are_looked_at(flow: Flow, instance: DagsterInstance) -> None:
    support.produce(flow.bootstrap, flow.topic, [b'{"id": "no number"}'])
    flow.run()
    done = run(flow, instance, DEAD_LETTERS)
    assert done.output["dead letters"] == 1
    [letter] = done.records("newest")
    assert (letter["error"].startswith("id: "), letter["value"]) == (True, '{"id": "no number"}')
    assert [record["dead letters"] for record in done.records("by error")] == [1]
    assert run(flow, instance, DEAD_LETTERS, topic="other").output == {"dead letters": 0}


def test_tables_that_take_row_changes_are_left_out_of_a_backfill(flow: Flow, instance: DagsterInstance) -> None:
    assert table_key(flow.pipeline, flow.table)
    rows = {"name": flow.table, "mode": "upsert", "key": ["id"], "auto_create": {"columns": {"id": "long"}}}
    changing = flow.but(name=f"{flow.name}_c", extra={"tables": [rows]})
    hour = this_hour(flow)
    refused = run(changing, instance, REPLAY_HOURS, hour=hour.strftime(HOUR))
    says(str(refused.failure), Code.CHANGES_READ_AGAIN, changing.name, changing.table)


def test_a_backfill_leaves_out_tables_that_can_t_be_replayed_and_names_them(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, instance: DagsterInstance
) -> None:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(10))
    flow.run()
    hour, folder = this_hour(flow), hudi_tables.place(flow, HUDI).folder
    done = run(flow, instance, REPLAY_HOURS, hour=hour.strftime(HOUR))
    assert done.result.success
    assert (done.output["rows"], done.output["rows replaced"]) == (10, 10)
    says(done.output["left out"][HUDI], Code.NOT_REPLACED, HUDI)
    assert hudi_tables.ids(folder) == flow.ids() == list(range(10))
    empty = run(flow, instance, REPLAY_HOURS, hour=(hour - timedelta(hours=5)).strftime(HOUR))
    assert empty.result.success
    assert "left out" not in empty.output
    # One that somebody asks for is no one to leave out.
    asked = run(flow, instance, REPLAY_HOURS, hour=hour.strftime(HOUR), tables=[HUDI])
    says(str(asked.failure), Code.NOT_REPLACED, HUDI)
    assert run(flow, instance, REPLAY, table=flow.table, from_time="1h").result.success

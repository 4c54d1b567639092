"""A pipeline's jobs on a Dagster instance, with a broker, a catalog and Spark that are there: what its assets tell."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
from pyspark.sql import SparkSession

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.names import CHECKS, RESOLVE, job_name
from calve.orchestration.dagster.common.topics import topic_key
from calve.orchestration.dagster.sink.names import COMMIT, INGEST, batches_key
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import Paused
from calve.sink_core.tables.log.events import CommitComplete, CommitToTable, DataComplete, StartCommit
from tests import support
from tests.codes import finding, raises, says
from tests.dagster_runs import run
from tests.pipelines import Flow, reached, tagged
from tests.support import TopicFactory

APART = {"commit": {"every": "1m"}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession) -> Flow:
    """Batches of ten records at most, on the session that all tests share."""
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"batch": {"max_records": 10}})


def test_each_batch_and_each_snapshot_is_a_materialization(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(15))
    flow.produce(range(15, 25), partition=1)
    done = run(flow, instance)
    assert done.result.success
    assert flow.ids() == list(range(25))
    completes = [event for event in flow.events(DataComplete) if event.kind == "batch"]
    assert len(done.batches) == len(completes) == 3
    assert [b["batch id"] for b in done.batches] == [event.batch_id for event in completes]
    assert [(b["records"], b["lag (offsets)"], b["dead letters"]) for b in done.batches] == [
        (10, 15, 0),
        (10, 5, 0),
        (5, 0, 0),
    ]
    for batch in done.batches:
        assert batch["bytes"] > 0
        assert (batch["engine"], batch["tasks"]) == ("in-process", 1)
        assert {"plan time (s)", "write time (s)", "publish time (s)"} <= batch.keys()
        ranges = [record.data for record in batch["ranges"].records]
        assert sum(r["offsets"] for r in ranges) == batch["records"]
        assert all(r["topic"] == flow.topic and r["end"] - r["start"] == r["offsets"] for r in ranges)
    snapshots = flow.own_snapshots()
    table = done.table()
    assert [t["snapshot id"] for t in table] == [str(snapshot_id) for snapshot_id, _ in snapshots]
    assert table[-1]["snapshot id"] == str(flow.load_table().current_snapshot().snapshot_id)  # pyright: ignore
    assert [(t["rows added"], t["dagster/row_count"], t["batches"]) for t in table] == [
        (10, 10, 1),
        (10, 20, 1),
        (5, 25, 1),
    ]
    columns = {c.name: c.type for c in table[0]["dagster/column_schema"].columns}
    assert columns.items() >= {"id": "long", "text": "string"}.items()
    assert (table[0]["dagster/uri"], table[0]["format version"]) == (flow.load_table().location(), 2)
    head = flow.load_table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert done.result.run_id in (head.summary[flow.summary_keys.made_by] or "")
    # What each batch did says the batch.
    [ledger] = done.table(flow.pipeline.ledger_table)
    assert ledger["dagster/row_count"] == 6
    assert all(column.description for column in ledger["dagster/column_schema"].columns)
    through = [t.get("valid through") for t in table]
    assert through == [own.valid_through_ms and own.valid_through_ms / 1000 for _, own in snapshots]
    assert through[-1]
    assert done.steps == {f"{flow.name}_ingest": "SUCCESS"}
    assert re.findall(r"\d+", done.tags["calve/moved"]) == ["25", "3"]


def test_a_run_that_finds_nothing_tells_nothing_and_is_green(flow: Flow, instance: DagsterInstance) -> None:
    first = run(flow, instance)
    assert first.result.success, "the first run only puts the start positions in place"
    assert (list(first.materialized), flow.events(StartCommit)) == ([], [])
    flow.produce(range(5))
    run(flow, instance)
    done = run(flow, instance)
    assert done.result.success
    assert list(done.materialized) == []
    assert done.steps == {f"{flow.name}_ingest": "SUCCESS"}
    assert "calve/moved" not in done.tags
    assert flow.ids() == list(range(5))


def test_a_run_may_be_given_other_bounds(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(35))
    done = run(flow, instance, max_batches=2)
    assert [batch["records"] for batch in done.batches] == [10, 10]
    assert flow.ids() == list(range(20))


def test_the_session_that_was_there_before_a_run_outlives_it(
    flow: Flow, instance: DagsterInstance, spark: SparkSession
) -> None:
    flow.produce(range(5))
    assert run(flow, instance).result.success
    assert flow.spark_ids(spark) == list(range(5))


def test_with_an_interval_ingestion_publishes_and_the_commit_job_commits(flow: Flow, instance: DagsterInstance) -> None:
    flow = flow.but(extra={"batch": {"max_records": 10}, **APART})
    flow.produce(range(15))
    done = run(flow, instance)
    assert done.result.success
    assert [batch["records"] for batch in done.batches] == [10, 5]
    assert {m.asset_key for m in done.materialized} == {batches_key(flow.pipeline)}
    assert (flow.ids(), flow.events(CommitToTable)) == ([], [])
    assert set(done.steps) == {f"{flow.name}_ingest"}
    committed = run(flow, instance, COMMIT)
    assert committed.result.success
    assert flow.ids() == list(range(15))
    [table] = committed.table()
    assert (table["rows added"], table["batches"], table["dagster/row_count"]) == (15, 2, 15)
    assert table["snapshot id"] == str(tagged(flow, flow.load_table()))
    assert len(committed.table(flow.pipeline.ledger_table)) == 1
    [letters] = committed.table(flow.pipeline.dead_letter_table)
    assert "rows added" not in letters, "only that it is there"
    again = run(flow, instance, COMMIT)
    assert again.result.success
    assert list(again.materialized) == []


def test_the_commit_job_of_a_pipeline_that_never_ran_is_green_and_writes_nothing(
    flow: Flow, instance: DagsterInstance
) -> None:
    done = run(flow, instance, COMMIT)
    assert done.result.success
    assert list(done.materialized) == []
    assert flow.pipeline.control_topic not in flow.admin.list_topics(timeout=30).topics


def test_the_commit_schedule_asks_only_if_something_waits(flow: Flow, instance: DagsterInstance) -> None:
    flow = flow.but(extra=APART)
    defs = build_pipeline_defs(flow.pipeline)
    [schedule] = [s for s in defs.schedules or [] if "commit" in s.name]
    assert isinstance(schedule, dg.ScheduleDefinition)

    def tick() -> str | None:
        with dg.build_schedule_context(instance) as context:
            data = schedule.evaluate_tick(context)
        assert len(data.run_requests or []) == (0 if data.skip_message else 1)
        return data.skip_message

    assert schedule.cron_schedule == "*/1 * * * *"
    assert re.findall(r"\d+", tick() or "") == ["0"], "it has never run"
    flow.produce(range(5))
    flow.publish()
    # A transaction's end reaches the control topic a moment after who committed it hears of it.
    assert any(tick() is None for _ in range(50))
    flow.commit()
    assert re.findall(r"\d+", tick() or "") == ["0"]
    flow.produce(range(5, 9))
    flow.publish()
    with flow.session() as session:
        session.log.append(Paused(pipeline_id=session.bind().pipeline_id, by="ann", reason="upgrade"))
    assert {"ann", "upgrade"} <= set(re.findall(r"\w+", tick() or ""))


def test_what_a_dead_run_has_published_is_taken_in_by_the_next(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(5))
    flow.publish()
    assert flow.ids() == []
    done = run(flow, instance)
    assert done.result.success
    assert flow.ids() == list(range(5))
    assert done.batches == []
    assert [table["rows added"] for table in done.table()] == [5]


def test_one_table_stays_behind_and_the_others_go_on(flow: Flow, instance: DagsterInstance, tmp_path: Path) -> None:
    flow = flow.but(tables=("db.events", "db.more"))
    flow.produce(range(5))
    with reached("publish.after-commit", flow.recreate_table, skip=1):
        done = run(flow, instance)
    assert not done.result.success
    assert flow.ids("db.more") == list(range(5))
    assert [table["rows added"] for table in done.table("db.more")] == [5]
    assert done.table("db.events") == []
    command = f"calve resolve {flow.pipeline.path} table-recreated --subject db.events --choose "
    says(done.failure.error.message, finding("table-recreated"), "db.events", command)
    said = {name: value.value for name, value in done.failure.user_failure_data.metadata.items()}
    assert (said["error"], said["code"], said["finding"]) == ("FindingError", "CLV-9504", "table-recreated")
    assert said["subject"] == "db.events"
    assert said["answered by"] == job_name(flow.pipeline, RESOLVE)
    assert said["what to do"].startswith(command)
    tags = done.tags
    assert (tags["calve/error"], tags["calve/terminal"]) == ("table-recreated", "true")
    assert "db.events" in tags["calve/why"]
    assert tags["calve/remedy"].startswith(command)
    assert tags["calve/config"] == flow.pipeline.config_fingerprint


def test_the_commit_job_keeps_what_landed_beside_a_table_that_stays_behind(
    flow: Flow, instance: DagsterInstance
) -> None:
    flow = flow.but(tables=("db.events", "db.more"), extra=APART)
    flow.produce(range(5))
    assert run(flow, instance).result.success
    flow.recreate_table()
    done = run(flow, instance, COMMIT)
    assert not done.result.success
    assert [table["rows added"] for table in done.table("db.more")] == [5]
    assert done.tags["calve/error"] == "table-recreated"
    assert instance.get_latest_materialization_event(dg.AssetKey(["db", "more"])) is not None
    assert instance.get_latest_materialization_event(dg.AssetKey(["db", "events"])) is None


def test_one_table_is_materialized_alone(flow: Flow, instance: DagsterInstance) -> None:
    flow = flow.but(tables=("db.events", "db.more"), extra=APART)
    flow.produce(range(5))
    assert run(flow, instance).result.success
    completes = len(flow.events(CommitComplete))
    job = build_pipeline_defs(flow.pipeline).resolve_job_def(job_name(flow.pipeline, COMMIT))
    alone = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(["db", "more"])])
    assert alone.success
    assert (flow.ids("db.more"), flow.ids()) == (list(range(5)), [])
    assert len(flow.events(CommitComplete)) == completes, "it would say that all tables have it"
    assert run(flow, instance, COMMIT).result.success
    assert flow.ids() == list(range(5))
    assert len(flow.events(CommitComplete)) == completes + 1


def test_what_a_run_published_before_it_failed_is_told(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(15))
    with reached("publish.after-commit", flow.recreate_table, skip=2):
        done = run(flow, instance)
    assert not done.result.success
    assert [batch["records"] for batch in done.batches] == [10, 5]
    assert [table["rows added"] for table in done.table()] == [10]
    assert done.tags["calve/error"] == "table-recreated"


def test_a_run_of_a_paused_pipeline_is_green_and_moves_nothing(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(5))
    flow.publish()
    flow.produce(range(5, 9))
    with flow.session() as session:
        session.log.append(Paused(pipeline_id=session.bind().pipeline_id, by="ann", reason="upgrade"))
    before = flow.positions()
    for stage in (INGEST, COMMIT):
        done = run(flow, instance, stage)
        assert done.result.success
        assert list(done.materialized) == []
        assert {"ann", "upgrade"} <= set(re.findall(r"\w+", done.tags["calve/paused"]))
    assert (flow.positions(), flow.ids(), len(flow.events(StartCommit))) == (before, [], 1)


def test_two_pipelines_of_one_topic_live_in_one_location(
    flow: Flow, instance: DagsterInstance, tmp_path: Path, broker: Broker
) -> None:
    other = Flow.create(tmp_path, broker.bootstrap, flow.topic, tables=("db.others",))
    defs = dg.Definitions.merge(*(build_pipeline_defs(each.pipeline) for each in (flow, other)))
    dg.Definitions.validate_loadable(defs)
    flow.produce(range(5))
    for each in (flow, other):
        job = defs.resolve_job_def(job_name(each.pipeline, INGEST))
        assert job.execute_in_process(instance=instance).success
        assert each.ids() == list(range(5))
    known = defs.resolve_all_asset_keys()
    assert {topic_key(each.pipeline, each.pipeline.config.source, flow.topic) for each in (flow, other)} <= set(known)


def test_topics_whose_names_differ_in_punctuation_only_are_two_assets(flow: Flow) -> None:
    two = flow.but(topics=("a-b", "a_b"))
    defs = build_pipeline_defs(two.pipeline)
    dg.Definitions.validate_loadable(defs)
    assert (
        len(
            {topic_key(two.pipeline, two.pipeline.config.source, topic) for topic in two.topics}
            & set(defs.resolve_all_asset_keys())
        )
        == 2
    )


def test_tables_that_dagster_would_take_for_one_are_refused(flow: Flow) -> None:
    two = flow.but(tables=("db.a-b", "db.a_b"))
    with raises(Code.DAGSTER_NAMES, "db.a_b", "db.a-b"):
        build_pipeline_defs(two.pipeline)


def test_the_whole_location_runs_in_one_go(flow: Flow, instance: DagsterInstance) -> None:
    """What "Materialize all" does: with an interval the commit still follows the ingestion it depends on."""
    flow = flow.but(extra=APART)
    flow.produce(range(5))
    job = build_pipeline_defs(flow.pipeline).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance).success
    assert flow.ids() == list(range(5))


@pytest.mark.parametrize("every", ["7m", "90s", "5h", "60500ms"])
def test_an_interval_that_no_schedule_has_is_refused_with_what_to_set(flow: Flow, every: str) -> None:
    pipeline = flow.but(extra={"commit": {"every": every}}).pipeline
    with raises(Code.COMMIT_EVERY, "commit.every", pipeline.path) as refused:
        build_pipeline_defs(pipeline)
    assert "batch" in refused.value.hint


@pytest.mark.parametrize(
    ("every", "cron"),
    [("1m", "*/1 * * * *"), ("30m", "*/30 * * * *"), ("1h", "0 * * * *"), ("6h", "0 */6 * * *"), ("1d", "0 0 * * *")],
)
def test_an_interval_becomes_a_cron_line(flow: Flow, every: str, cron: str) -> None:
    defs = build_pipeline_defs(flow.but(extra={"commit": {"every": every}}).pipeline)
    schedule = defs.resolve_schedule_def(f"{job_name(flow.pipeline, COMMIT)}_schedule")
    assert schedule.cron_schedule == cron


def test_what_is_wrong_with_sparks_settings_is_told_as_other_errors_are(flow: Flow, instance: DagsterInstance) -> None:
    spark = {"master": "local[2]", "conf": {"spark.x": "${ENV:CALVE_TEST_MISSING}"}}
    flow = flow.but(spark=spark, extra={"batch": {"spark_from_records": 0}})
    assert run(flow, instance).result.success, "nothing was there to read, and no session needed"
    flow.produce(range(5))
    done = run(flow, instance)
    assert not done.result.success
    assert (done.tags["calve/error"], done.tags["calve/terminal"]) == ("ConfigError", "false")
    assert "CALVE_TEST_MISSING" in done.tags["calve/why"]
    says(done.failure.error.message, Code.UNSET_VARIABLE, "CALVE_TEST_MISSING")


# Dagster's snapshot of a repository reads a property that Dagster has deprecated.
@pytest.mark.filterwarnings(r"ignore:Property `ScheduleDefinition\.environment_vars`:DeprecationWarning")
def test_no_secret_reaches_definitions_runs_events_or_tags(
    flow: Flow, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    referred, literal = support.unique("s3cr3t"), support.unique("l1t3ral")
    monkeypatch.setenv("CALVE_TEST_SECRET", referred)
    secrets = {"referred": "${ENV:CALVE_TEST_SECRET}", "literal": literal}
    flow = flow.but(
        tables=("db.events", "db.more"),
        kafka={"sasl.username": "ann", "sasl.password": secrets["referred"], "ssl.key.password": literal},
        lake_properties={"s3.secret-access-key": secrets["referred"], "token": literal},
        spark={
            "master": "local[2]",
            "conf": {f"spark.hadoop.fs.s3a.{name}.secret.key": value for name, value in secrets.items()},
        },
    )
    defs = build_pipeline_defs(flow.pipeline)
    shown = serialize_value(RepositorySnap.from_def(defs.get_repository_def()))
    # Not on Spark: the workers of the session that tests share were started without the variable.
    flow.produce(range(5))
    flow.publish()
    done = run(flow, instance)
    assert done.result.success
    assert done.table()
    flow.produce(range(5, 9))
    flow.publish()
    flow.recreate_table()
    for stage in (INGEST, COMMIT):
        assert not run(flow, instance, stage).result.success
    assert run(flow, instance, CHECKS).result.success
    monkeypatch.delenv("CALVE_TEST_SECRET")
    missing = run(flow, instance)
    says(missing.failure.error.message, Code.UNSET_VARIABLE, "CALVE_TEST_SECRET")
    kept = {str(path): path.read_bytes() for path in (tmp_path / "dagster").rglob("*") if path.is_file()}
    assert any(b"table-recreated" in content for content in kept.values())
    assert flow.topic in shown
    for secret in (referred, literal):
        assert secret not in shown
        assert [where for where, content in kept.items() if secret.encode() in content] == []

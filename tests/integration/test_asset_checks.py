"""What a pipeline's asset checks find, with a broker, a catalog and Spark that are there."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.names import CHECKS, job_name
from calve.orchestration.dagster.sink import checks, ingest
from calve.orchestration.dagster.sink.names import INGEST
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from tests import support
from tests.codes import names, says
from tests.dagster_runs import run
from tests.pipelines import COLUMNS, Flow
from tests.support import TopicFactory

BROKEN = b'{"id": "not a number"}'


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, spark: SparkSession) -> Flow:
    """Batches of ten records at most, on the session that all tests share."""
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), extra={"batch": {"max_records": 10}})


def keys(flow: Flow) -> set[tuple[str, str]]:
    name = flow.name
    return {
        (f"{name}/{name}_batches", "lag"),
        (f"{name}/{name}_batches", "retention"),
        (f"{name}/{name}_batches", "blockers"),
        ("db/events", "freshness"),
        ("db/events", "file_sizes"),
        ("db/events", "dropped_fields"),
        (f"calve/{name}_dead_letters", "dead_letter_rate"),
        (f"calve/{name}_dead_letters", "schema_misfits"),
        (f"calve/{name}_ledger", "proof"),
    }


def test_after_an_ingest_run_everything_is_checked(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(5))
    done = run(flow, instance)
    assert done.checks.keys() == keys(flow)
    assert all(check.passed for check in done.checks.values())
    # At rest nothing is red, yellow or never made.
    assets = build_pipeline_defs(flow.pipeline).resolve_asset_graph().materializable_asset_keys
    assert {told.asset_key for told in done.materialized} == assets


def test_a_long_ledger_is_not_proven_after_every_run(
    flow: Flow, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.produce(range(5))
    assert run(flow, instance).checks.keys() == keys(flow)
    assert run(flow, instance).checks.keys() == keys(flow), "one of a single batch is read in no time"
    monkeypatch.setattr(ingest, "PROOF_ALWAYS_TO", 0)
    assert run(flow, instance).checks.keys() == {at for at in keys(flow) if at[1] != "proof"}
    monkeypatch.setattr(ingest, "PROOF_EVERY_S", 0.0)
    assert run(flow, instance).checks.keys() == keys(flow)
    monkeypatch.setattr(ingest, "PROOF_TO", 0)
    assert run(flow, instance).checks.keys() == {at for at in keys(flow) if at[1] != "proof"}
    monkeypatch.setattr(ingest, "PROOF_MISSED_S", 0.0)
    missed = run(flow, instance).checks[f"calve/{flow.name}_ledger", "proof"]
    assert (missed.passed, missed.severity) == (False, dg.AssetCheckSeverity.WARN)
    names(missed.description or "", 1, job_name(flow.pipeline, CHECKS))


def test_a_proof_that_takes_too_long_is_given_up_and_all_else_is_checked(
    flow: Flow, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.produce(range(5))
    flow.run()
    monkeypatch.setattr(checks, "PROOF_WITHIN_S", 0.0)
    done = run(flow, instance, CHECKS)
    assert done.checks.keys() == keys(flow)
    proof = done.checks[f"calve/{flow.name}_ledger", "proof"]
    assert (proof.passed, proof.severity) == (False, dg.AssetCheckSeverity.WARN)
    names(proof.description or "", Code.PROOF_TOO_LONG, "dagster.prove_since")
    assert {at[1] for at, check in done.checks.items() if not check.passed} == {"proof"}


@pytest.mark.parametrize("job", [INGEST, CHECKS])
def test_a_table_that_can_t_be_loaded_is_named_and_all_else_is_checked(
    flow: Flow, instance: DagsterInstance, kafka_topic: TopicFactory, job: str
) -> None:
    other = kafka_topic(1)
    tables = [
        {"name": f"db.t{i}", "topics": [topic], "auto_create": {"columns": COLUMNS}}
        for i, topic in enumerate((flow.topic, other))
    ]
    flow = flow.but(topics=(flow.topic, other), tables=("db.t0", "db.t1"), extra={**flow.extra, "tables": tables})
    flow.run()
    Path(flow.load_table("db.t1").metadata_location.removeprefix("file://")).unlink()
    flow.produce(range(5), topic=other)
    flow.produce(range(3))
    done = run(flow, instance, job)
    assert done.result.success is (job == CHECKS)
    if job == INGEST:
        assert flow.ids("db.t0") == list(range(3))
        assert (done.tags["calve/alone"], done.tags["calve/held"]) == ("db.t1", other)
    blockers = done.checks[f"{flow.name}/{flow.name}_batches", "blockers"]
    says(blockers.description or "", Code.METADATA_GONE, "db.t1", other)
    proof = done.checks[f"calve/{flow.name}_ledger", "proof"]
    assert (proof.passed, proof.severity) == (False, dg.AssetCheckSeverity.WARN)
    says(proof.description or "", Code.METADATA_GONE, "db.t1")
    assert {at[1] for at, check in done.checks.items() if not check.passed} == {"blockers", "proof"}


def test_the_checks_job_checks_everything(flow: Flow, instance: DagsterInstance) -> None:
    flow.produce(range(5))
    support.produce(flow.bootstrap, flow.topic, [BROKEN], partition=1)
    flow.run()
    done = run(flow, instance, CHECKS)
    assert done.result.success
    assert done.checks.keys() == keys(flow)
    rate = done.checks[f"calve/{flow.name}_dead_letters", "dead_letter_rate"]
    assert (rate.passed, rate.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert {at[1] for at, check in done.checks.items() if not check.passed} == {"dead_letter_rate", "schema_misfits"}
    misfits: Any = done.checks[f"calve/{flow.name}_dead_letters", "schema_misfits"].metadata["misfits"]
    assert [(row.data["field"], row.data["records"]) for row in misfits.records] == [("id", 1)]
    proof = done.checks[f"calve/{flow.name}_ledger", "proof"]
    assert (proof.passed, proof.metadata["offsets"].value) == (True, 6)


def test_a_pipeline_that_never_ran_is_checked_but_for_the_proof(flow: Flow, instance: DagsterInstance) -> None:
    done = run(flow, instance, CHECKS)
    assert done.result.success
    assert done.checks.keys() == {at for at in keys(flow) if at[1] != "proof"}
    assert all(check.passed for check in done.checks.values())


@pytest.mark.parametrize("table", ["ledger", "data"])
def test_the_proof_fails_once_rows_are_removed_behind_calves_back(
    flow: Flow, instance: DagsterInstance, table: str
) -> None:
    flow.produce(range(5))
    flow.run()
    name = flow.pipeline.ledger_table if table == "ledger" else flow.table
    loaded = flow.load_table(name)
    [file] = [task.file.file_path for task in loaded.scan().plan_files()]
    if table == "ledger":
        loaded.delete("true")
    else:
        Path(file.removeprefix("file://")).unlink()
    done = run(flow, instance, CHECKS)
    assert done.result.success, "checks report, they do not fail the run"
    proof = done.checks[f"calve/{flow.name}_ledger", "proof"]
    assert (proof.passed, proof.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert name in (proof.description or "")


def test_the_proof_of_the_last_days_shows_violations_with_their_ranges(flow: Flow, instance: DagsterInstance) -> None:
    for start in (0, 5, 10):
        flow.produce(range(start, start + 5))
        flow.run()
    flow = flow.but(extra={**flow.extra, "dagster": {"prove_since": "1d"}})
    key = f"calve/{flow.name}_ledger", "proof"
    good = run(flow, instance, CHECKS).checks[key]
    assert good.passed
    assert datetime.fromisoformat(str(good.metadata["since"].value))
    flow.load_table(flow.pipeline.ledger_table).delete("end_offset = 10")
    proof = run(flow, instance, CHECKS).checks[key]
    assert not proof.passed
    shown: Any = proof.metadata["violations"]
    gaps = [each.data["ranges"] for each in shown.records if each.data["kind"] == "ledger-gap"]
    assert gaps == [f"{flow.topic}[0] [5, 10)"]


def test_lag_and_freshness_are_measured_against_the_objectives(flow: Flow, instance: DagsterInstance) -> None:
    flow = flow.but(extra={"objectives": {"lag": 4, "freshness": "500ms"}})
    flow.produce(range(4))
    support.produce(flow.bootstrap, flow.topic, [b'{"id": 4}'], partition=1, timestamps=[1_000])
    assert {c.passed for c in run(flow, instance).checks.values()} == {True}
    flow.produce(range(5, 10))
    done = run(flow, instance, CHECKS)
    failed = {at[1]: check for at, check in done.checks.items() if not check.passed}
    assert failed.keys() >= {"lag", "freshness"}
    assert failed["lag"].metadata["lag"].value == 5
    assert "objectives.lag" in (failed["lag"].description or "")
    assert "objectives.freshness" in (failed["freshness"].description or "")

"""A mirror's definitions at work: what runs tell Dagster, when the sensor wants one, what an operator's jobs do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.execution.execute_in_process_result import ExecuteInProcessResult

from calve import build_pipeline_defs
from calve.orchestration.dagster.common.moving import MOVED_TAG
from calve.orchestration.local.broker import Broker
from tests import support
from tests.dagster_runs import run_of
from tests.mirrors import Mirror, mirror
from tests.pipelines import Flow


@pytest.fixture
def copied(broker: Broker, other_broker: Broker, tmp_path: Path) -> Mirror:
    """A mirror of two topics, of which one has records; nobody has run it yet."""
    topics = [support.create_topic(broker.bootstrap, support.unique(name), 2) for name in ("orders", "returns")]
    support.produce(broker.bootstrap, topics[0], [f"a{i}" for i in range(20)])
    support.produce(broker.bootstrap, topics[0], [f"b{i}" for i in range(10)], partition=1)
    return mirror(broker, other_broker, tmp_path, topics)


def run(made: Mirror, instance: DagsterInstance, stage: str, **config: Any) -> ExecuteInProcessResult:
    return run_of(made.pipeline, instance, stage, **config).result


def materialized(done: ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """The metadata of each asset that was materialized."""
    found = [e.step_materialization_data.materialization for e in done.all_events if e.is_step_materialization]
    assert len({each.asset_key for each in found}) == len(found)
    return {
        m.asset_key.to_user_string(): {n: getattr(v, "records", v.value) for n, v in m.metadata.items()} for m in found
    }


def output(done: ExecuteInProcessResult) -> dict[str, Any]:
    [event] = [e for e in done.all_events if e.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def test_a_run_is_told_by_batch_and_by_remote_topic(copied: Mirror, instance: DagsterInstance) -> None:
    orders, _ = copied.pipeline.config.source.topics
    sensor = build_pipeline_defs(copied.pipeline).get_repository_def().get_sensor_def(f"{copied.name}_lag")
    with dg.build_sensor_context(instance) as context:
        assert len(sensor.evaluate_tick(context).run_requests or ()) == 1
    done = run(copied, instance, "copy")
    assert done.success
    told = materialized(done)
    assert told.keys() == {f"{copied.name}/copy", f"{copied.name}/{copied.remote(orders)}"}
    batch, topic = told[f"{copied.name}/copy"], told[f"{copied.name}/{copied.remote(orders)}"]
    assert (batch["records"], batch["bytes"], batch["slots"], batch["lag (offsets)"]) == (30, 70, 1, 0)
    assert (topic["records"], topic["bytes"], topic["source topic"], topic["batch id"]) == (
        30,
        70,
        orders,
        batch["batch id"],
    )
    assert [tuple(row.data.values()) for row in topic["ranges"]] == [(0, 0, 20, 0, 20, 20), (1, 0, 10, 0, 10, 10)]
    ran = instance.get_run_by_id(done.run_id)
    assert ran is not None
    assert re.findall(r"\d+", ran.tags[MOVED_TAG]) == ["30", "1"]
    checks = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
    assert checks == dict.fromkeys(
        ["lag", "freshness", "retention", "foreign_records", "blockers", "findings", "chain"], True
    )
    with dg.build_sensor_context(instance) as context:
        ticked = sensor.evaluate_tick(context)
        assert not ticked.run_requests
        assert ticked.skip_message
        assert {event.asset_key.path[-1] for event in ticked.asset_events} == {
            f"{t.replace('-', '_')}_topic" for t in copied.pipeline.config.source.topics
        }
    assert not materialized(run(copied, instance, "copy"))


def test_checks_turn_red_for_what_others_have_written(copied: Mirror, instance: DagsterInstance) -> None:
    copied.run()
    support.produce(copied.target.bootstrap, copied.remote(copied.pipeline.config.source.topics[1]), ["not ours"])
    done = run(copied, instance, "checks")
    [red] = [each for each in done.get_asset_check_evaluations() if not each.passed]
    assert (red.check_name, red.metadata["topics"].value, red.metadata["partitions"].value) == ("foreign_records", 1, 1)


def test_an_operators_jobs(copied: Mirror, instance: DagsterInstance) -> None:
    copied.run()
    assert run(copied, instance, "pause", reason="a test").success
    support.produce(copied.source.bootstrap, copied.pipeline.config.source.topics[0], ["later"])
    held = run(copied, instance, "copy")
    assert (held.success, materialized(held)) == (True, {})
    assert output(run(copied, instance, "positions"))["pending records"] == 1
    assert run(copied, instance, "resume").success
    assert output(run(copied, instance, "verify", deep=True))["proven"] is True
    assert output(run(copied, instance, "resolve"))["findings"] == 0
    for task in ("trim", "keep_alive"):
        assert run(copied, instance, task).success
    assert materialized(run(copied, instance, "copy"))[f"{copied.name}/copy"]["records"] == 1


def test_a_finding_stops_the_run_and_names_the_job_that_answers_it(copied: Mirror, instance: DagsterInstance) -> None:
    copied.run()
    topic = copied.pipeline.config.source.topics[0]
    support.produce(copied.source.bootstrap, topic, ["later"])
    remote = copied.remote(topic)
    with copied.plane() as plane:
        plane.admin.delete_topics([remote])[remote].result(30)
    failed = run(copied, instance, "copy")
    assert not failed.success
    [event] = [e for e in failed.all_events if e.is_step_failure]
    assert event.step_failure_data.user_failure_data is not None
    said = {name: value.value for name, value in event.step_failure_data.user_failure_data.metadata.items()}
    assert (said["finding"], said["answered by"]) == ("remote-topic-recreated", f"{copied.name}_resolve_job")
    assert output(run(copied, instance, "resolve"))["findings"] == 1


def test_one_lineage_leads_from_the_source_topic_over_the_mirror_to_the_table(copied: Mirror, tmp_path: Path) -> None:
    orders, _ = copied.pipeline.config.source.topics
    remote = copied.remote(orders)
    flow = Flow.create(
        tmp_path, copied.target.bootstrap, remote, extra={"source": {"fed_by": [copied.name, "elsewhere"]}}
    )
    defs = dg.Definitions.merge(build_pipeline_defs(copied.pipeline), build_pipeline_defs(flow.pipeline))
    graph = defs.get_repository_def().asset_graph
    table = dg.AssetKey(["db", "events"])
    above = {key.to_user_string() for key in graph.get_ancestor_asset_keys(table)}
    topic = f"{copied.name}/{orders.replace('-', '_')}_topic"
    wanted = {topic, f"{copied.name}/copy", f"{copied.name}/{remote}", f"elsewhere/{remote}"}
    assert wanted < above
    # Of a pipeline that is not loaded here Dagster shows a stub.
    assert not graph.get(dg.AssetKey(["elsewhere", remote])).is_materializable
    assert graph.get(dg.AssetKey([copied.name, remote])).is_materializable

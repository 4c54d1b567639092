"""Fields that no reader could read as columns, and fields that a table has no column for: counted and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.orchestration.dagster.sink import verdicts
from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.schema_preview import schema_preview
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import DataComplete
from tests import support
from tests.pipelines import Flow
from tests.support import TopicFactory

LEFT = {"ID": 10, "_pos": 10, "": 10, "a.b": 10}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))


def produce(flow: Flow, ids: range, **more: Any) -> None:
    values = [json.dumps({"id": i, **more}).encode() for i in ids]
    support.produce(flow.bootstrap, flow.topic, values)


@pytest.mark.parametrize("evolve", [False, True], ids=["created", "evolved"])
def test_a_table_of_such_records_is_read_by_every_reader(flow: Flow, spark: SparkSession, evolve: bool) -> None:
    columns = {"columns": {"id": "long"}} if evolve else {}
    tables = [{"name": flow.table, "auto_create": columns, "evolve": ["add_column"] if evolve else []}]
    flow = flow.but(extra={"tables": tables})
    # The one that comes first has the name.
    produce(flow, range(10), a={"b": 7, "c": 8}, ID=2, _pos=3, **{"": 4, "a.b": 5})
    report = flow.run()
    assert report.ended == "caught up"
    assert flow.ids() == flow.spark_ids(spark) == list(range(10))
    assert [row["a"] for row in flow.rows(flow.table)] == [{"b": 7, "c": 8}] * 10
    assert [batch.dropped for batch in report.batches] == [{flow.table: LEFT}]


def test_fields_without_a_column_are_named_wherever_a_user_looks(flow: Flow) -> None:
    produce(flow, range(5))
    flow.run()
    produce(flow, range(5, 12), channel="web", id_of={"x": 1})
    with flow.session() as session:
        session.read_only()
        plan = Planner(session, max_tasks=1).preview()
        assert plan
        assert schema_preview(session, plan).dropped == {flow.table: {"channel": 7, "id_of": 7}}
    [batch] = flow.run().batches
    assert batch.dropped == {flow.table: {"channel": 7, "id_of": 7}}
    assert flow.events(DataComplete)[-1].dropped == batch.dropped
    with flow.session() as session:
        report = status(session)
    [table] = [each for each in report.tables if each.table == flow.table]
    assert table.dropped == {"channel": 7, "id_of": 7}
    verdict = verdicts.dropped_fields(table)
    assert not verdict.passed
    assert verdict.details == {"dropped": {"channel": 7, "id_of": 7}}
    ignoring = flow.but(extra={"table_defaults": {"ignore_fields": ["channel", "id_of"]}})
    produce(ignoring, range(12, 14), channel="web")
    [batch] = ignoring.run().batches
    assert batch.dropped == {}


def test_a_record_with_a_field_that_no_column_takes_may_be_a_dead_letter(flow: Flow) -> None:
    strict = {"evolve": ["add_column"], "unknown_fields": "dead_letter"}
    flow = flow.but(extra={"table_defaults": strict})
    produce(flow, range(3))
    produce(flow, range(3, 5), _pos=1)
    # What may be a column becomes one.
    produce(flow, range(5, 7), channel="web")
    [batch] = flow.run().batches
    assert flow.ids() == [0, 1, 2, 5, 6]
    assert [row["channel"] for row in flow.rows() if row["id"] > 4] == ["web", "web"]
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert [(row["stage"], row["error"].partition(": ")[0]) for row in letters] == [("fit", "_pos")] * 2
    assert batch.dropped == {}
    # Left out after all, they can be replayed.
    flow = flow.but(extra={"table_defaults": {"evolve": ["add_column"]}})
    with flow.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 2
    assert flow.ids() == list(range(7))

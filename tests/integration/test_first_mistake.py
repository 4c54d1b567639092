"""A first run that fails binds nothing, and what a run would refuse `check`, `plan` and `status` say before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.load import load
from calve.sink_core.errors import CalveError, ConfigError, FindingError
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import DataComplete
from tests import support
from tests.launch import calve, cold
from tests.pipelines import Flow, reached
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))


def elsewhere(flow: Flow) -> Flow:
    """The same pipeline by a host with another catalog."""
    return flow.but(lake=flow.lake.parent / "elsewhere")


def proven(flow: Flow, *ids: int) -> None:
    assert flow.ids() == list(ids)
    shown = calve("verify", flow.pipeline.path, "--deep")
    assert "proven" in shown.stdout


def test_a_mistyped_catalog_is_corrected_and_nothing_more(flow: Flow, tmp_path: Path) -> None:
    flow.produce(range(3))
    (tmp_path / "file").touch()
    wrong = elsewhere(flow).but(lake_properties={"warehouse": f"file://{tmp_path}/file/warehouse"})
    with pytest.raises(CalveError, match=r"writing|creating"):
        wrong.run()
    for command in ("check", "plan", "status"):
        shown = calve(command, flow.pipeline.path)
        assert shown.returncode == 0, shown.stdout
        assert "other-catalog" not in shown.stdout
    flow.run()
    proven(flow, 0, 1, 2)


def test_of_two_first_runs_the_one_that_publishes_first_binds(flow: Flow) -> None:
    """The other one stops, whichever bound first, and has published nothing."""
    flow.produce(range(3))
    other = elsewhere(flow)
    with pytest.raises(FindingError, match="other-catalog"), reached("bind.after-append", other.run):
        flow.run()
    assert [event.kind for event in flow.events(DataComplete)] == ["bootstrap", "batch"]
    proven(other, 0, 1, 2)


@pytest.mark.parametrize("place", ["publish.after-fence", "plan.after-start-commit"])
def test_a_first_run_of_another_catalog_in_between_stops(flow: Flow, place: str) -> None:
    flow.produce(range(3))
    other, found = elsewhere(flow), list[str]()

    def run_there() -> None:
        try:
            other.run()
        except FindingError as error:
            found.append(error.finding)

    # The bootstrap has been published by then, or is about to be: the other one's then comes first.
    with reached(place, run_there):
        try:
            flow.run()
        except FindingError as error:
            found.append(error.finding)
    assert found == ["other-catalog"]
    assert [event.kind for event in flow.events(DataComplete)] == ["bootstrap", "batch"]
    published = other if place == "publish.after-fence" else flow
    proven(published, 0, 1, 2)


def test_another_catalog_is_told_by_check_plan_and_status(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    flow.produce(range(3, 5))
    other = elsewhere(flow)
    checked = calve("check", other.pipeline.path)
    assert checked.returncode == 1
    assert "failed       pipeline: other-catalog: " in checked.stdout
    planned = calve("plan", other.pipeline.path)
    assert planned.returncode == 1
    assert "other-catalog: " in planned.stderr
    with other.session() as session:
        assert [found.partition(":")[0] for found in status(session).findings] == ["other-catalog"]
    flow.run()
    assert flow.ids() == list(range(5))


def test_a_table_without_history_is_told_by_check(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    added = {"tables": [{"name": flow.table}, {"name": "db.new", "auto_create": {"columns": {"id": "long"}}}]}
    checked = calve("check", flow.but(extra=added).pipeline.path)
    assert checked.returncode == 1
    assert "failed       pipeline: table db.new was added to a pipeline that has published 1 batches" in checked.stdout


def test_no_java_is_told_by_check_and_by_run(flow: Flow) -> None:
    flow.produce(range(3))
    checked = calve("check", flow.pipeline.path, JAVA_HOME="/nonexistent")
    assert checked.returncode == 1
    assert "failed       engine: no Java in JAVA_HOME=/nonexistent; Kafka and Spark need 17 or newer" in checked.stdout
    wanting = flow.but(extra={"batch": {"spark_from_records": 3}})
    refused = cold("run", wanting.pipeline.path, JAVA_HOME="/nonexistent")
    assert refused.returncode == 2
    assert "no Java in JAVA_HOME=/nonexistent" in refused.stderr
    # Fewer records need no Spark.
    assert cold("run", flow.pipeline.path, JAVA_HOME="/nonexistent").returncode == 0
    assert flow.ids() == [0, 1, 2]


def test_who_may_not_list_namespaces_passes_and_runs(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:
        raise ForbiddenError("Principal 'calve' may not list namespaces")

    # A catalog with such rights can't be had here.
    monkeypatch.setattr(SqlCatalog, "list_namespaces", forbid)
    flow.produce(range(3))
    checked = calve("check", flow.pipeline.path)
    assert checked.returncode == 0, checked.stdout
    assert "(sql), namespace calve will be created; it lists none to this user" in checked.stdout
    flow.run()
    assert "namespace calve is there" in calve("check", flow.pipeline.path).stdout
    proven(flow, 0, 1, 2)


def test_a_pipeline_file_with_everything_inline_needs_no_connections(flow: Flow, tmp_path: Path) -> None:
    flow.produce(range(3))
    file = tmp_path / "alone" / "pipeline.yaml"
    file.parent.mkdir()
    document: dict[str, Any] = {
        "name": flow.name,
        "source": {"kafka": {"bootstrap.servers": flow.bootstrap}, "topics": [flow.topic]},
        "catalog": {"name": "inline", "type": "sql", **support.catalog_properties(tmp_path / "alone")},
        "tables": [{"name": "db.events", "auto_create": {}}],
    }
    # What is wrong in it comes first, not a file that it does not need.
    file.write_text(json.dumps(document | {"source": {**document["source"], "topics": flow.topic}}))
    with pytest.raises(ConfigError, match=r"source\.topics: takes a list: write ") as raised:
        load(file)
    assert "no such connections file" not in str(raised.value)
    file.write_text(json.dumps(document))
    checked = calve("check", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "topics: " in checked.stdout


def test_what_the_first_run_would_read_and_create_is_planned_before_it(flow: Flow) -> None:
    flow.produce(range(3))
    planned = calve("plan", flow.pipeline.path)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.splitlines() == [
        f"pipeline {flow.name} has not run yet: the first run begins at start: earliest",
        "next batch: 3 offsets, about 0.0 MiB, in 1 task",
        "topic\tpartition\tstart\tend\toffsets",
        f"{flow.topic}\t0\t0\t3\t3",
        f"tables to be created: {flow.table}",
    ]
    latest = flow.but(extra={"source": {"start": "latest"}})
    assert calve("plan", latest.pipeline.path).stdout.splitlines()[1:] == ["nothing to read"]
    # It has written nothing.
    assert flow.positions() == {}
    assert flow.pipeline.control_topic not in flow.admin.list_topics(timeout=30).topics
    assert not flow.lake.joinpath("db").exists()


def test_a_type_of_catalog_that_there_is_not_is_answered_with_those_there_are(flow: Flow) -> None:
    wrong = flow.but(lake_properties={"type": "postgres"})
    with pytest.raises(ConfigError, match=r"'postgres' is no type of catalog: there are .*, rest, sql"):
        wrong.run()

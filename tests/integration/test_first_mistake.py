"""A first run that fails binds nothing, and what a run would refuse `check`, `plan` and `status` say before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from calve.sink_core.errors import FindingError
from calve.sink_core.finding import FindingKind
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import DataComplete
from tests import support
from tests.codes import finding, number, raises, says
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
    assert shown.returncode == 0, shown.stdout


def checked(file: Path, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code of `calve check`, and what it says by the name of each check."""
    done = calve("check", file, "--json", **environment)
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def fails(outcome: dict[str, str], code: str | FindingKind, *values: object) -> None:
    assert (outcome["status"], outcome["code"]) == ("failed", number(code)), outcome
    assert [value for value in values if str(value) not in outcome["message"]] == [], outcome


def test_a_mistyped_catalog_is_corrected_and_nothing_more(flow: Flow, tmp_path: Path) -> None:
    flow.produce(range(3))
    (tmp_path / "file").touch()
    wrong = elsewhere(flow).but(lake_properties={"warehouse": f"file://{tmp_path}/file/warehouse"})
    with raises(Code.CATALOG_AWAY, tmp_path / "file" / "warehouse"):
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
    with raises(finding("other-catalog")), reached("bind.after-append", other.run):
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
    code, found = checked(other.pipeline.path)
    assert code == 1
    fails(found["pipeline"], finding("other-catalog"))
    planned = calve("plan", other.pipeline.path)
    assert planned.returncode == 1
    says(planned.stderr, finding("other-catalog"))
    with other.session() as session:
        assert [each.partition(":")[0] for each in status(session).findings] == ["other-catalog"]
    flow.run()
    assert flow.ids() == list(range(5))


def test_a_table_without_history_is_told_by_check(flow: Flow) -> None:
    flow.produce(range(3))
    flow.run()
    added = {"tables": [{"name": flow.table}, {"name": "db.new", "auto_create": {"columns": {"id": "long"}}}]}
    code, found = checked(flow.but(extra=added).pipeline.path)
    assert code == 1
    fails(found["pipeline"], Code.HISTORY_UNSET, "db.new", 1)


def test_no_java_is_told_by_check_and_by_run(flow: Flow) -> None:
    flow.produce(range(3))
    code, found = checked(flow.pipeline.path, JAVA_HOME="/nonexistent")
    assert code == 1
    fails(found["engine"], Code.JAVA, "JAVA_HOME=/nonexistent", 17)
    wanting = flow.but(extra={"batch": {"spark_from_records": 3}})
    refused = cold("run", wanting.pipeline.path, JAVA_HOME="/nonexistent")
    assert refused.returncode == 2
    says(refused.stderr, Code.JAVA, "JAVA_HOME=/nonexistent")
    # Fewer records need no Spark.
    assert cold("run", flow.pipeline.path, JAVA_HOME="/nonexistent").returncode == 0
    assert flow.ids() == [0, 1, 2]


def test_who_may_not_list_namespaces_passes_and_runs(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:
        raise ForbiddenError("Principal 'calve' may not list namespaces")

    # A catalog with such rights can't be had here.
    monkeypatch.setattr(SqlCatalog, "list_namespaces", forbid)
    flow.produce(range(3))
    code, found = checked(flow.pipeline.path)
    assert (code, found["catalog"]["status"], "calve" in found["catalog"]["message"]) == (0, "ok", True), found
    flow.run()
    again = checked(flow.pipeline.path)[1]["catalog"]
    assert (again["status"], again["message"] != found["catalog"]["message"]) == ("ok", True)
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
    with raises(Code.SETTINGS, "source.topics") as raised:
        load(file)
    assert "connections.yaml" not in str(raised.value)
    file.write_text(json.dumps(document))
    code, found = checked(file)
    assert (code, found["topics"]["status"]) == (0, "ok"), found


def test_what_the_first_run_would_read_and_create_is_planned_before_it(flow: Flow) -> None:
    flow.produce(range(3))
    planned = calve("plan", flow.pipeline.path)
    assert planned.returncode == 0, planned.stderr
    assert "earliest" in planned.stdout
    assert f"{flow.topic}\t0\t0\t3\t3" in planned.stdout.splitlines()
    document = json.loads(calve("plan", flow.pipeline.path, "--json").stdout)
    batch = document["batch"]
    assert (document["bootstrapped"], batch["offsets"], batch["tasks"]) == (False, 3, 1)
    assert (batch["ranges"], batch["tables_created"]) == ([[flow.topic, 0, 0, 3]], [flow.table])
    latest = flow.but(extra={"source": {"start": "latest"}})
    assert json.loads(calve("plan", latest.pipeline.path, "--json").stdout) == {"bootstrapped": False, "batch": None}
    # It has written nothing.
    assert flow.positions() == {}
    assert flow.pipeline.control_topic not in flow.admin.list_topics(timeout=30).topics
    assert not flow.lake.joinpath("db").exists()


def test_a_type_of_catalog_that_there_is_not_is_answered_with_those_there_are(flow: Flow) -> None:
    wrong = flow.but(lake_properties={"type": "postgres"})
    with raises(Code.CATALOG_SETTING, "postgres", "rest", "sql"):
        wrong.run()

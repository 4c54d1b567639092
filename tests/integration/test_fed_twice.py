"""Two pipelines and one table: different records are welcome, the same ones are a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT, FindingError
from calve.sink_core.tables.log.events import DataComplete
from tests.codes import finding, raises, says
from tests.pipelines import Flow, reached
from tests.resolving import resolve, resolved, run_and_prove
from tests.support import TopicFactory, unique

FINDING = "table-fed-twice"


@pytest.fixture
def theirs(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """A pipeline that has put ids 0 to 9 into the table."""
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    flow.run()
    return flow


def another(flow: Flow, **changes: object) -> Flow:
    """A pipeline of another name in the same catalog, with the same table and, unless told otherwise, topics."""
    return flow.but(name=unique("q").replace("-", "_"), catalog_name=flow.catalog, **changes)


@pytest.fixture
def ours(theirs: Flow) -> Flow:
    return another(theirs)


def stopped(flow: Flow, *words: str, subject: str = "") -> FindingError:
    with raises(finding(FINDING)) as found:
        flow.run()
    assert (found.value.finding, found.value.subject) == (FINDING, subject or flow.table)
    assert [word for word in words if word not in str(found.value)] == []
    return found.value


def test_the_same_records_for_the_same_table_are_found_before_anything_is_read(theirs: Flow, ours: Flow) -> None:
    error = stopped(ours, f"{ours.topic}[0] [0, 10)", theirs.pipeline.group)
    assert f"calve resolve {ours.pipeline.path} {FINDING} --subject {ours.table} --choose adopt" in error.hint
    assert (ours.positions(), ours.events(DataComplete)) == ({}, [])
    assert theirs.ids() == list(range(10))
    run_and_prove(theirs)


def test_another_topic_for_the_same_table_is_welcome(theirs: Flow, kafka_topic: TopicFactory) -> None:
    ours = another(theirs, topics=(kafka_topic(1),))
    ours.produce(range(10, 20))
    run_and_prove(ours)
    theirs.produce(range(20, 30))
    run_and_prove(theirs)
    assert theirs.ids() == list(range(30))


def test_a_pipeline_that_begins_where_another_ended_is_welcome_and_stops_the_other(theirs: Flow, ours: Flow) -> None:
    exported = CliRunner().invoke(app, ["positions", "export", str(theirs.pipeline.path)])
    file = ours.pipeline.path.parent / "positions.json"
    file.write_text(exported.stdout)
    imported = CliRunner().invoke(app, ["positions", "import", str(ours.pipeline.path), str(file)])
    assert imported.exit_code == 0, imported.output
    theirs.produce(range(10, 20))
    run_and_prove(ours)
    stopped(theirs, ours.pipeline.group, "[10, 20)")
    assert ours.ids() == list(range(20))


def test_what_is_adopted_is_not_asked_again(theirs: Flow, ours: Flow) -> None:
    stopped(ours)
    said = resolved(ours, FINDING, "adopt")
    assert theirs.pipeline.group in said["does"][0]
    ours.run()
    ours.run()
    assert ours.ids() == sorted(2 * [*range(10)])
    assert ours.load_table().properties[f"calve.{ours.name}.adopted"] == theirs.pipeline.group
    stopped(theirs, ours.pipeline.group)
    resolved(theirs, FINDING, "adopt")
    theirs.produce(range(10, 20))
    theirs.run()
    ours.run()
    assert ours.ids() == sorted(2 * [*range(20)])


def test_one_that_appears_during_a_run_is_found_at_the_commit(theirs: Flow, ours: Flow) -> None:
    late = another(theirs, tables=("db.late",))
    late.produce(range(10, 20))
    second = another(theirs, tables=("db.late",))
    with reached("publish.after-commit", late.run, skip=1), raises(finding(FINDING), "db.late"):
        second.run()
    assert late.ids() == list(range(20)), "published by the second, and committed by the late one only"
    resolved(second, FINDING, "adopt")
    second.run()
    assert second.ids() == sorted(2 * [*range(20)])


def test_the_same_name_in_another_deployment_is_no_neighbour(theirs: Flow) -> None:
    ours = theirs.but(deployment="other")
    # The tables that nothing goes without are looked at first.
    stopped(ours, theirs.pipeline.group, ours.pipeline.group, subject=ours.pipeline.ledger_table)
    answer = resolve(ours, FINDING, "--subject", ours.table, "--choose", "adopt", "--yes")
    assert answer.exit_code == EXIT_BAD_INPUT
    says(answer.stderr, Code.NOT_POSSIBLE, "adopt", ours.name)


def test_a_ledger_that_is_gone_says_nothing_and_so_stops(theirs: Flow, kafka_topic: TopicFactory) -> None:
    ours = another(theirs, topics=(kafka_topic(1),))
    with theirs.iceberg() as catalog:
        catalog.drop_table(theirs.pipeline.ledger_table)
    stopped(ours, theirs.pipeline.ledger_table)

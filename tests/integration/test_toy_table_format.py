"""A table format that stands in one file outside the product is created, written and committed to, beside Iceberg."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.table_formats import TABLE_FORMATS
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify
from tests.codes import finding, raises
from tests.pipelines import COLUMNS, Flow
from tests.support import Produce, TopicFactory
from tests.toy_table_format import LINES, folder_of, rows_of

NAMES = ("db.events", "db.lines")


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """One topic into a table of each format."""
    monkeypatch.setitem(TABLE_FORMATS, LINES.name, LINES)
    created = {"auto_create": {"columns": COLUMNS}}
    tables = [
        {"name": NAMES[0], **created},
        {"name": NAMES[1], "format": LINES.name, **created, "evolve": ["add_column"]},
    ]
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), tables=NAMES, extra={"tables": tables})


def ids(flow: Flow) -> list[int]:
    return sorted(row["id"] for row in rows_of(folder(flow)))


def folder(flow: Flow) -> Path:
    return folder_of(flow.pipeline.path, NAMES[1])


def test_each_record_is_in_both_tables_once(flow: Flow) -> None:
    for first in (0, 100):
        flow.produce(range(first, first + 100))
        landed = [commit for report in flow.run().commits for commit in report.landed]
        assert [commit.rows for commit in landed if commit.table == NAMES[1]] == [100]
    assert ids(flow) == flow.ids() == list(range(200))
    assert not list(flow.lake.rglob("lines*")), "the catalog knows nothing of it"


def test_what_was_published_before_a_death_is_committed_by_the_next_run(flow: Flow) -> None:
    flow.produce(range(10))
    flow.publish()
    assert rows_of(folder(flow)) == []
    flow.run()
    flow.run()
    assert ids(flow) == list(range(10))


def test_of_two_that_commit_at_once_the_second_finds_nothing_to_do(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.produce(range(10))
    flow.publish()
    others = iter([True])

    def faster(name: str) -> None:
        if name == "lines.before-commit" and next(others, False):
            flow.commit()

    monkeypatch.setattr("tests.toy_table_format.reach", faster)
    report = flow.commit()
    assert next(others, None) is None
    assert [commit.landed for commit in report.commits if commit.table == NAMES[1]] == [False]
    assert ids(flow) == list(range(10))


def test_it_is_given_columns_that_records_need(flow: Flow, produce: Produce) -> None:
    produce(flow.topic, [b'{"id": 1, "text": "a"}', b'{"id": 2, "text": "b", "more": 3}'])
    flow.run()
    assert [row["more"] for row in rows_of(folder(flow))] == [None, 3]


def test_it_is_among_what_status_verify_and_trim_look_at(flow: Flow) -> None:
    flow.produce(range(10))
    flow.run()
    with flow.session() as session:
        [found] = [table for table in status(session).tables if table.table == NAMES[1]]
        assert (found.rows, found.snapshots, found.uncommitted.batches, found.finding) == (10, 1, 0, None)
    with flow.session() as session:
        report = verify(session, deep=True)
        assert report.violations == ()
        assert [each.subject for each in report.not_checked if LINES.name in each.why] == [NAMES[1]]
    with flow.session() as session:
        session.read_only()
        taken = [kept for kept in session.needed(lambda _: None).kept if NAMES[1] in kept.why]
        assert taken == []


def test_a_table_that_was_dropped_is_a_finding(flow: Flow) -> None:
    flow.produce(range(10))
    flow.run()
    shutil.rmtree(folder(flow))
    with raises(finding("table-dropped")):
        flow.run()
    assert not folder(flow).exists()


def test_row_changes_are_refused_where_the_format_has_none(flow: Flow) -> None:
    table = {
        "name": NAMES[1],
        "format": LINES.name,
        "mode": "upsert",
        "key": ["id"],
        "auto_create": {"columns": COLUMNS},
    }
    flow = flow.but(tables=NAMES[1:], extra={"tables": [table]})
    flow.produce(range(1))
    with raises(Code.TABLE_UNUSABLE, NAMES[1]):
        flow.run()

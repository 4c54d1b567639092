"""A table added to a pipeline that runs gets the history that it asks for, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.trim import trim
from tests.codes import raises
from tests.integration.range_jobs import assert_unviolated, filled, proof, refill
from tests.pipelines import COLUMNS, Flow, reached
from tests.support import TopicFactory

ADDED = {"name": "db.added", "auto_create": {"columns": COLUMNS}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return filled(Flow.create(tmp_path, broker.bootstrap, kafka_topic(2)))


def with_added(flow: Flow, history: str | None) -> Flow:
    """The same pipeline with a second table."""
    tables = [{"name": t, "auto_create": dict(flow.auto_create)} for t in flow.tables]
    added = ADDED | ({"history": history} if history else {})
    return flow.but(tables=(*flow.tables, "db.added"), extra={"tables": [*tables, added]})


def test_a_table_added_later_must_say_what_it_gets(flow: Flow) -> None:
    flow.produce(range(30, 32))
    with raises(Code.HISTORY_UNSET, "db.added", 3):
        with_added(flow, None).run()
    assert flow.ids() == list(range(30))
    none = with_added(flow, "none")
    none.run()
    assert none.ids("db.added") == [30, 31]
    with_added(flow, None).run()
    assert_unviolated(none)


def test_an_added_table_gets_its_history_once(flow: Flow) -> None:
    flow.produce(range(30, 32))
    added = with_added(flow, "replay")
    report = added.run()
    assert [job.rows for job in report.history] == [30]
    assert added.ids("db.added") == list(range(32))
    assert added.ids() == list(range(32))
    assert added.run().history == []
    assert_unviolated(added)


def test_history_is_read_batch_by_batch_up_to_the_limit_of_a_batch(flow: Flow) -> None:
    added = with_added(flow, "replay")
    small = added.but(extra={**added.extra, "batch": {"max_records": 12}})
    report = small.run()
    assert [job.rows for job in report.history] == [10, 10, 10]
    assert small.ids("db.added") == list(range(30))
    assert_unviolated(small)


def test_history_takes_in_what_a_process_with_the_old_file_publishes_meanwhile(flow: Flow) -> None:
    added = with_added(flow, "replay")

    def old() -> None:
        flow.produce(range(30, 35))
        flow.run()

    with reached("range.after-manifests", old):
        report = added.run()
    assert [job.rows for job in report.history] == [30, 5]
    assert added.ids("db.added") == list(range(35))
    flow.produce(range(40, 45))
    flow.run()
    assert [job.rows for job in added.run().history] == [5]
    assert added.ids("db.added") == [*range(35), *range(40, 45)]
    assert_unviolated(added)


def test_history_survives_a_trim_and_a_refill(flow: Flow) -> None:
    added = with_added(flow, "replay")
    added.run()
    flow.produce(range(30, 35))
    added.run()
    with added.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert added.run().history == []
    assert_unviolated(added)
    with added.iceberg() as catalog:
        catalog.drop_table("db.added")
    refill(added, "db.added")
    assert added.ids("db.added") == list(range(35))
    assert added.run().history == []
    assert_unviolated(added)


def test_history_that_a_roll_back_cut_off_is_refilled_after_a_trim_as_well(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        assert trim(session, older_than_s=0).changed
    flow.produce(range(30, 32))
    added = with_added(flow, "replay")
    added.run()
    first = added.own_snapshots("db.added")[0][0]
    added.load_table("db.added").manage_snapshots().rollback_to_snapshot(first).commit()
    assert added.ids("db.added") == [30, 31]
    refill(added, "db.added")
    assert added.ids("db.added") == list(range(32))
    assert_unviolated(added)


def test_history_that_retention_took_is_refused_with_the_ranges(flow: Flow) -> None:
    flow.delete_records(flow.topic, 5)
    added = with_added(flow, "replay")
    with raises(Code.GONE_FROM_KAFKA, f"{flow.topic}[0] [0, 5)", "history: none"):
        added.run()
    flow.produce(range(30, 32))
    with_added(flow, "none").run()
    assert added.ids("db.added") == [30, 31]


def test_the_proof_is_violated_where_history_lacks_rows(flow: Flow) -> None:
    added = with_added(flow, "replay")
    added.run()
    added.load_table("db.added").delete("id = 7")
    report = proof(added)
    assert [(v.kind, v.ranges) for v in report.violations if v.subject == "db.added" and v.ranges] == [
        ("range-rows", (f"{flow.topic}[0] [0, 20)",))
    ]

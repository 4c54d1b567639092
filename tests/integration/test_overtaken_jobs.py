"""Jobs that were stopped half-way: what somebody did meanwhile is seen before anything of theirs counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.trim import trim
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests.codes import finding, raises
from tests.damage import delete_the_group, restore_the_catalog, roll_back, with_two_batches
from tests.pipelines import COLUMNS, Flow, reached
from tests.resolving import resolved, run_and_prove
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its table, ids 0 to 19, and ten records waiting."""
    return with_two_batches(tmp_path, broker, kafka_topic(2))


def test_a_range_job_that_read_a_topic_created_again_publishes_nothing(flow: Flow) -> None:
    """The records that now have the offsets of the lost ones would take their place."""
    published = flow.events(DataComplete)

    def again() -> None:
        flow.recreate_topic(flow.topic, 2)
        flow.produce(range(100, 130))

    roll_back(flow)
    with flow.session() as session:
        session.bind()
        jobs = RangeJobs(session)
        with reached("range.after-start-commit", again), raises(finding("topic-recreated")):
            jobs.refill(flow.table)
    assert flow.events(DataComplete) == published
    assert flow.ids() == list(range(10))


def test_a_range_job_that_slept_while_the_group_was_lost_and_put_back_publishes_nothing(flow: Flow) -> None:
    """It was planned without a token, and another has read the same ranges since. Were the token not put back as well,
    it would find none, as planned.
    """
    tables = [{"name": flow.table}, {"name": "db.added", "history": "replay", "auto_create": {"columns": COLUMNS}}]
    added = flow.but(tables=(flow.table, "db.added"), extra={"tables": tables})

    def others() -> None:
        assert [job.rows for job in added.run().history] == [20]
        delete_the_group(added)
        resolved(added, "positions-missing", "restore")

    with added.session() as session, reached("range.after-manifests", others):
        session.bind()
        session.create_missing(["db.added"])
        late = RangeJobs(session).history("db.added")
    assert late.verdict is Verdict.STALE
    assert added.ids("db.added") == list(range(30))
    run_and_prove(added)


def test_a_trim_keeps_the_events_that_a_table_lacks_since_it_was_looked_at(flow: Flow) -> None:
    """The table was put back to what it was before its last batch: nothing else names the files with these rows."""
    lacking = [event for event in flow.events(DataWritten) if event.table == flow.table][-1]
    with flow.session() as session, reached("trim.after-checkpoint", lambda: restore_the_catalog(flow)):
        session.bind()
        assert trim(session, older_than_s=0).changed
    assert flow.ids() == list(range(10))
    assert [event for event in flow.events(DataWritten) if event.table == flow.table] == [lacking]

"""A Hudi table that says less than was told, or is another one: shown and answered; nothing is twice or silent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import FindingError
from calve.sink_core.hudi.files.timeline import read_timeline
from calve.sink_core.sink.range_jobs.jobs import RangeJobs
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.events import CommitToTable
from tests import hudi_tables
from tests.codes import finding, raises
from tests.hudi_tables import NAMES
from tests.pipelines import Died, Flow, reached
from tests.resolving import numbers, refused, resolved
from tests.support import TopicFactory

Break = Callable[[Flow], None]
HUDI = NAMES[1]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    """Two batches in its tables and records pending."""
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1))
    for first in (0, 10):
        flow.produce(range(first, first + 10))
        flow.run()
    flow.produce(range(20, 30))
    return flow


def folder(flow: Flow) -> Path:
    return hudi_tables.place(flow, HUDI).folder


def ids(flow: Flow) -> list[int]:
    return hudi_tables.ids(folder(flow))


def restored(flow: Flow) -> None:
    """To the savepoint of its first batch."""
    hudi_tables.restore(folder(flow), read_timeline(hudi_tables.place(flow, HUDI)).commits[0].requested)


def dropped(flow: Flow) -> None:
    shutil.rmtree(folder(flow))


def recreated(flow: Flow) -> None:
    dropped(flow)
    with flow.session() as session:
        session.bind()
        session.create_missing([HUDI])


def run_and_prove(flow: Flow) -> None:
    flow.run()
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (restored, "table-restored"),
        (dropped, "table-dropped"),
        pytest.param(recreated, "table-recreated", marks=pytest.mark.faults),
    ],
)
def test_a_refill_reads_again_what_was_lost_and_nothing_else(flow: Flow, break_it: Break, finding: str) -> None:
    break_it(flow)
    with pytest.raises(FindingError, match=finding):
        flow.run()
    said = resolved(flow, finding, "refill")
    assert HUDI in said["done"][0]
    run_and_prove(flow)
    assert ids(flow) == flow.ids() == list(range(30))
    assert set(hudi_tables.completions(folder(flow)).values()) == {1}


def test_accept_goes_on_without_the_rows(flow: Flow) -> None:
    restored(flow)
    said = resolved(flow, "table-restored", "accept")
    assert numbers(said["does"][0], HUDI)[-2:] == [10, 1]
    run_and_prove(flow)
    assert ids(flow) == [*range(10), *range(20, 30)]
    assert flow.ids() == list(range(30))


def test_nobody_offers_files_again_that_are_not_kept(flow: Flow) -> None:
    restored(flow)
    with raises(finding("table-restored")) as found:
        flow.run()
    assert found.value.choices == ("refill", "accept")
    refused(flow, "table-restored", "recommit", Code.NO_SUCH_CHOICE, "refill", "accept")


def test_a_table_put_back_before_its_commit_was_reported_gets_the_batch_again(flow: Flow) -> None:
    """What nobody reported nobody has to miss: its staged files are still there."""

    def die() -> None:
        raise Died

    with pytest.raises(Died), reached("commit.before-report", die, skip=2):
        flow.run()
    assert ids(flow) == list(range(30))
    assert len([e for e in flow.events(CommitToTable) if e.table == HUDI]) == 2
    hudi_tables.restore(folder(flow), read_timeline(hudi_tables.place(flow, HUDI)).commits[1].requested)
    assert ids(flow) == list(range(20))
    run_and_prove(flow)
    assert ids(flow) == list(range(30))


def test_what_was_published_before_a_table_was_added_is_read_again(flow: Flow) -> None:
    added = {"name": "db.late", "format": "hudi", "auto_create": {}, "history": "replay"}
    later = flow.but(tables=(*NAMES, "db.late"), extra={**flow.extra, "tables": [*flow.extra["tables"], added]})
    with later.session() as session:
        session.bind()
        session.create_missing(["db.late"])
        assert [report.rows for report in RangeJobs(session).history_to_end("db.late")] == [20, 0]
    run_and_prove(later)
    assert hudi_tables.ids(hudi_tables.place(flow, "db.late").folder) == list(range(30))


def test_a_replay_that_would_replace_rows_is_refused(flow: Flow) -> None:
    with flow.session() as session:
        session.bind()
        with raises(Code.NOT_REPLACED, "format"):
            RangeJobs(session).replay(HUDI, Wanted())
    assert ids(flow) == list(range(20))

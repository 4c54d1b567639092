"""A table that takes no commit stays behind alone: all others get what is read, and it is named until it has it too."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.sink_core.sink.status import status
from calve.sink_core.tables.log.events import CommitComplete, DataWritten
from tests.codes import says
from tests.pipelines import Flow
from tests.support import TopicFactory


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(2), tables=("db.good", "db.bad"))


def _answer(real: Callable[..., Any], table: Table, *args: object) -> object:
    """What a catalog says that takes nothing for one table."""
    if ".".join(table.name()) == "db.bad":
        raise PermissionError("403: not allowed to write db.bad")
    return real(table, *args)


@contextmanager
def refusing(flow: Flow) -> Generator[Session]:
    with flow.session() as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.catalog, "commit_table", partial(_answer, session.catalog.commit_table))
        session.bind()
        yield session


def test_one_table_s_failure_does_not_stop_the_others_and_is_made_up_for(flow: Flow) -> None:
    flow.produce(range(5))
    flow.publish()
    with refusing(flow) as session:
        report = session.coordinator().commit(tables=flow.pipeline.table_names)
    assert list(report.failed) == ["db.bad"]
    assert "403" in str(report.failed["db.bad"])
    assert (flow.ids("db.good"), flow.ids("db.bad")) == (list(range(5)), [])
    assert flow.events(CommitComplete)[-1].tables_behind == ("db.bad",)
    flow.produce(range(5, 8))
    flow.run()
    assert flow.ids("db.good") == flow.ids("db.bad") == list(range(8))


def test_a_run_goes_on_beside_a_table_that_takes_nothing(flow: Flow) -> None:
    flow.produce(range(5))
    flow.run()
    for batch in (range(5, 10), range(10, 15)):
        flow.produce(batch)
        with refusing(flow) as session:
            report = run_pipeline(session)
            [shown] = status(session).blockers
        assert flow.ids("db.good") == list(range(batch.stop))
        assert (list(report.failed), [each.where for each in report.blockers]) == (["db.bad"], ["db.bad"])
        # Both runs name it with since when.
        lacking = flow.events(DataWritten)[-2 if batch.start == 5 else -4]
        assert (shown.where, shown.since_ms) == ("db.bad", report.blockers[0].since_ms)
        assert shown.since_ms is not None
        assert shown.since_ms <= lacking.written_at_ms
        says(shown.why, report.failed["db.bad"].code, "403")
        with pytest.raises(type(report.failed["db.bad"])) as raised:
            report.raise_failures()
        assert raised.value.alone == ("db.bad",)
    assert flow.ids("db.bad") == list(range(5))
    assert flow.run().failed == {}
    assert flow.ids("db.bad") == list(range(15))
    with flow.session() as session:
        assert status(session).blockers == ()

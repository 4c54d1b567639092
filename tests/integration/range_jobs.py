"""A pipeline of three batches, the jobs that read ranges of it again, and their proof."""

from __future__ import annotations

from typing import Any

from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.range_jobs.jobs import RangeJobs, RangeReport
from calve.sink_core.sink.range_jobs.selected import Wanted
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.proof import VerifyReport
from tests import support
from tests.pipelines import Flow

BAD = b'{"id": "not a number"}'


def filled(flow: Flow) -> Flow:
    """Three batches in the table, ids 0 to 29, the second with a dead letter and a tombstone."""
    flow.produce(range(10))
    flow.run()
    flow.produce(range(10, 20), partition=1)
    support.produce(flow.bootstrap, flow.topic, [BAD, None], partition=1)
    flow.run()
    flow.produce(range(20, 30))
    flow.run()
    return flow


def refill(flow: Flow, table: str = "") -> RangeReport:
    with flow.session() as session:
        session.bind()
        return RangeJobs(session).refill(table or flow.table)


def part(flow: Flow, start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(flow.topic, partition, start, end)


def replay(flow: Flow, *ranges: OffsetRange, **times: Any) -> RangeReport:
    with flow.session() as session:
        session.bind()
        return RangeJobs(session).replay(flow.table, Wanted(ranges=ranges, **times))


def delete(flow: Flow, where: str) -> None:
    """Somebody deletes rows by hand: their data files are written again without them."""
    flow.load_table().delete(where)


def proof(flow: Flow) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=True)


def assert_proven(flow: Flow, *not_checked: str) -> None:
    """Nothing is violated, and but for one thing of each that is named all could be looked at."""
    report = proof(flow)
    assert report.violations == ()
    assert sorted(each.subject for each in report.not_checked) == sorted(not_checked), report.not_checked
    assert set(report.uncommitted.values()) == {0}


def assert_unviolated(flow: Flow) -> None:
    """As `assert_proven`, of a proof that may not have looked at everything."""
    report = proof(flow)
    assert report.violations == ()
    assert set(report.uncommitted.values()) == {0}

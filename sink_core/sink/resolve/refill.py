"""The answer `refill`: what a table with a finding lost is read from Kafka again."""

from __future__ import annotations

from calve.sink_core.control.answers import Answer, Lines, overtaken
from calve.sink_core.control.decision import Verdict
from calve.sink_core.errors import FindingError
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.jobs import RangeJobs


def refill(session: Session, found: FindingError) -> Answer:
    """The answer for a table whose rows are in Kafka. The commit of the range job is what resolves the finding."""

    def carry_out() -> Lines:
        report = RangeJobs(session).refill(found.subject)
        if report.verdict in (None, Verdict.STALE):
            raise overtaken(session, report.ended)
        return (f"{found.subject}: {report.rows:,} rows were read again; range job {report.batch_id}",)

    would = f"{found.subject}: the batches that its head lacks are read from Kafka again, those and no others"
    return Answer((would,), carry_out)

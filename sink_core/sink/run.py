"""The loop: plan → write → publish → commit, until what waited is read or the bounds are reached.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.rounds import Bounds, OnProgress, Progress, blocked, ending, rounds
from calve.sink_core.control.status import Blocker
from calve.sink_core.control.trim import trim_after_run
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.report import Line
from calve.sink_core.sink.batches import BatchReport, Ingest
from calve.sink_core.sink.loop.coordinator import CommitReport, raise_first
from calve.sink_core.sink.loop.held import AGAIN_AFTER_S
from calve.sink_core.sink.loop.job import commit_published
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.jobs import RangeJobs, RangeReport
from calve.sink_core.timing import Deadline


@dataclass(slots=True)
class RunReport:
    """What a run did. `ended` says why it ended; `stopped_early` if there may be more to read.

    `history` has the range jobs for tables that were added.
    """

    batches: list[BatchReport] = field(default_factory=list[BatchReport])
    commits: list[CommitReport] = field(default_factory=list[CommitReport])
    history: list[RangeReport] = field(default_factory=list[RangeReport])
    ended: str = ""
    stopped_early: bool = False
    blockers: Sequence[Blocker] = ()
    failed: Mapping[str, CalveError] = field(default_factory=dict[str, CalveError])
    """Tables that stay behind, each with its reason; all others have what was published."""

    def to_json(self) -> dict[str, Any]:
        return {
            **ending(self),
            "failed": {table: error.to_json() for table, error in self.failed.items()},
            "batches": [asdict(batch) for batch in self.batches],
            "commits": [commit.to_json() for commit in self.commits],
            "history": [job.to_json() for job in self.history],
        }

    def lines(self) -> Iterator[Line]:
        rows = Counter[str]()
        for landed in (landed for commit in self.commits for landed in commit.landed):
            rows[landed.table] += landed.rows
        yield from (Line(f"{table}: {added:,} rows committed") for table, added in rows.items())
        yield from (line for job in self.history for line in job.lines())
        yield Line(self.ended)

    def raise_failures(self) -> None:
        """Raise what failed of the first table that stays behind, which stands `alone`."""
        topics = tuple(dict.fromkeys(topic for error in self.failed.values() for topic in error.held))
        for error in self.failed.values():
            error.alone, error.held = tuple(self.failed), topics
        raise_first(self.failed)


OnBatch = Callable[[BatchReport], None]
OnCommit = Callable[[CommitReport], None]


def run_pipeline(
    session: Session,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    on_batch: OnBatch | None = None,
    on_commit: OnCommit | None = None,
    committing: bool = True,
) -> RunReport:
    """Go through `run_steps`; `on_batch` and `on_commit` are told of each. Its failures the caller raises."""
    report = RunReport()
    steps = run_steps(session, report, bounds=bounds, on_progress=on_progress, committing=committing)
    for step in steps:
        if isinstance(step, BatchReport):
            if on_batch:
                on_batch(step)
        elif on_commit:
            on_commit(step)
    return report


def run_steps(
    session: Session,
    report: RunReport,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    committing: bool = True,
) -> Iterator[BatchReport | CommitReport]:
    """Run one pipeline until it has what waited at its start or is paused, within `bounds` (default: the file's).

    Gives each batch once it is published (or is stale), and each commit that did something, before the failure that
    stops the run is raised; `report` has all of it and says at the end why it ended. A stale batch ends the run without
    an error: another run is at work, and has published or will publish those records. A batch that orphan removal gave
    up nobody else will publish: its records are planned again. Raises FindingError if the pipeline must stop; what was
    committed until then stays. Unless `committing`, what is published waits for a commit by somebody else.

    A table that can't be committed to stops nobody else: it keeps its stored offset and catches up once it can, and
    `report.failed` has why. What stops the run is what a batch needs: a finding on a table, by which the next batch
    stops too; and the ledger, without which nobody can account for it. Of topics that feed a table which can't be
    loaded, or whose rows changes are held against and which takes no commit, nothing is read (`Held`). So a run
    publishes beside a commit that failed exactly what it publishes where commits are left to a schedule.
    """
    bounds = bounds or Bounds.of(session.pipeline)
    progress = on_progress or (lambda _progress: None)
    ingest = Ingest(session, on_progress=on_progress)
    deadline = Deadline.after(bounds.max_duration_s)
    ingest.bind()
    if ingest.paused:
        report.ended = str(ingest.paused)
        return
    commits = _Commits(session, report, progress, wanted=committing)
    # Before anything may stop the run: a table with a finding must not hold up what is published for the others.
    yield from commits.commit(everything=True)
    ingest.prepare()
    for batch in rounds(ingest, bounds, deadline, report, progress):
        report.batches.append(batch)
        yield batch
        if batch.given_up:
            progress(Progress("plan", batch.why, batch.batch_id))
            continue
        if batch.verdict is Verdict.STALE:
            report.ended = f"stale batch: {batch.why}; another run has its records, and this one has nothing to do"
            break
        yield from commits.after_batch()
    if not report.batches:
        ingest.keep_alive()
    if any(batch.published for batch in report.batches) or not ingest.paused:
        # A pause lets a run commit what it has published itself.
        yield from commits.commit(everything=False, again=bool(report.batches))
    if not ingest.paused:
        for job in _history(session, {**report.failed, **ingest.held}, progress):
            report.history.append(job)
            yield from commits.commit(everything=False)
        if "trim" not in session.pipeline.config.maintenance.off:
            trim_after_run(session, report, progress)
    behind = [
        Blocker.of(table, error, session.log.state.behind_since_ms(table))
        for table, error in report.failed.items()
        if table not in ingest.held
    ]
    report.failed = {**report.failed, **ingest.held}
    report.ended += blocked("; not committed: ", behind)
    report.blockers = [*report.blockers, *behind]
    progress(Progress("end", report.ended))


def _history(session: Session, failed: Collection[str], progress: OnProgress) -> Iterator[RangeReport]:
    """The range jobs for tables that were added with `history: replay`, until nothing is left or another run does it.

    After the new records: these are waited for, and from the first batch that feeds the table the rest only grows by
    what processes with the old file still publish. Tables that `failed` have to wait for their history.
    """
    jobs = RangeJobs(session, on_progress=progress, committing=False)
    for table in session.pipeline.tables:
        if table.name not in failed and table.history == "replay" and session.log.state.unfed_batches(table.name) > 0:
            yield from (job for job in jobs.history_to_end(table.name) if job.batch_id)


class _Commits:
    """When a run commits: after each batch, or each `commit.every` seconds and at its end; never unless `wanted`."""

    def __init__(self, session: Session, report: RunReport, progress: OnProgress, *, wanted: bool) -> None:
        self._session = session
        self._report = report
        self._progress = progress
        self._wanted = wanted
        every = session.pipeline.config.commit.every
        self._every_s = 0.0 if every == "batch" else float(every)
        self._due = Deadline.after(self._every_s)
        self._again = Deadline.after(0.0)

    def after_batch(self) -> Iterator[CommitReport]:
        if self._due.passed:
            yield from self.commit(everything=False, again=self._again.passed)

    def commit(self, *, everything: bool, again: bool = False) -> Iterator[CommitReport]:
        """`everything` looks at tables without news too, so that findings on them show. `again` tries those that failed
        before: after each batch their tries would hold up all others.
        """
        if not self._wanted:
            return
        failed = self._report.failed
        tables = self._session.pipeline.table_names if everything else tuple(failed) if again else ()
        after_publish = bool(self._report.batches or self._report.history)
        behind = {} if again else failed
        report = commit_published(self._session, tables, self._progress, after_publish=after_publish, behind=behind)
        if report.failed.keys() - behind.keys():
            self._again = Deadline.after(AGAIN_AFTER_S)
        self._report.failed = report.failed
        self._due = Deadline.after(self._every_s)
        if report.commits or report.failed:
            self._report.commits.append(report)
            yield report
        ledger = self._session.pipeline.ledger_table
        raise_first({t: e for t, e in report.failed.items() if isinstance(e, FindingError) or t == ledger})

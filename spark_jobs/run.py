"""The loop: plan → write → publish → commit, until the lag is gone or the bounds are reached.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from sink_core.batch import BatchPlan, WrittenBatch
from sink_core.commit.coordinator import CommitReport
from sink_core.commit.schema_change import change_schema
from sink_core.commit.view import TableView
from sink_core.config.effective import Pipeline
from sink_core.control.complete import data_complete, data_written
from sink_core.control.decision import Decision, Verdict, decide
from sink_core.control.events import Paused
from sink_core.control.state import CommitState
from sink_core.errors import TableUnusable
from sink_core.maintenance.keep_alive import is_due
from sink_core.offsets import Position, Positions
from sink_core.planning import Planned, Planner, Source, check_topics
from sink_core.range_jobs.missing import check_new, check_stated
from sink_core.session import Session
from sink_core.tables.internal import LEDGER_SCHEMA
from spark_jobs.ingest import write_batch
from spark_jobs.range_job import RangeJobs, RangeReport
from spark_jobs.runner import SparkRunner
from spark_jobs.steps import OnProgress, Progress
from spark_jobs.until_fit import give

LINGER_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a run ends although there is more to read. `linger_s` is how long it waits for more once the lag is gone."""

    max_batches: int
    max_duration_s: float
    linger_s: float

    @classmethod
    def of(cls, pipeline: Pipeline) -> Bounds:
        run = pipeline.config.run
        return cls(run.max_batches, run.max_duration, run.linger)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that was planned and written. `seconds` of wall time by step.

    `given_up`: it is stale because orphan removal gave it up; the next batch of the run is planned in its place.
    """

    batch_id: str
    verdict: Verdict
    why: str
    ranges: tuple[tuple[str, int, int, int], ...]
    records: int
    dead_lettered: int
    tombstones: int
    gaps: int
    value_bytes: int
    rows: dict[str, int]
    lag_after: int
    seconds: dict[str, float]
    given_up: bool = False
    unrouted: int = 0

    @property
    def published(self) -> bool:
        return self.verdict is not Verdict.STALE


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


OnBatch = Callable[[BatchReport], None]
OnCommit = Callable[[CommitReport], None]


class Ingest:
    """Plans, writes and publishes batches of one pipeline on one Spark session."""

    def __init__(self, session: Session, runner: SparkRunner, *, on_progress: OnProgress | None = None) -> None:
        self._session = session
        self._runner = runner
        self._progress = on_progress or (lambda _progress: None)
        self._planner = Planner(session, max_tasks=runner.parallelism())
        self._seen = set[str]()

    def bind(self) -> None:
        """Bind the pipeline. That is all for a paused one: it can be paused before anything is read for it."""
        self._progress(Progress("start", "binding the pipeline"))
        self._session.bind()

    def prepare(self) -> None:
        """Create missing tables and put the start positions in place. Harmless when done before."""
        self._progress(Progress("start", "looking at the tables"))
        check_stated(self._session.pipeline.tables, self._session.log.state)
        committer = self._session.committer(self._planner.first_reading)
        for name in self._session.pipeline.table_names:
            # Before anything is created: a table that was dropped must not come back as if it were new.
            committer.load_checked(name)
        wanted = self._session.pipeline.tables_of(())
        self._session.create_missing(wanted)
        self._seen.update(wanted)
        # A ledger of an earlier version lacks columns.
        change_schema(self._session.catalog, self._session.pipeline.ledger_table, LEDGER_SCHEMA, ("add_column",))
        self._begin(self._planner.look())

    def next_batch(self) -> BatchReport | None:
        """One batch from plan to publish; None if there is nothing to read, or the pipeline is paused."""
        seconds: dict[str, float] = {}
        self._progress(Progress("plan", "reading positions and end offsets"))
        with _timed(seconds, "plan"):
            planned = self._plan()
        if planned is None:
            return None
        plan = planned.plan
        what = f"{plan.offsets:,} offsets in {len(plan.tasks)} tasks"
        self._progress(Progress("write", what, plan.batch_id, plan.offsets))
        with _timed(seconds, "write"):
            tables = self._load_tables(plan)
            written = write_batch(
                plan,
                pipeline=self._session.pipeline,
                tables=tables,
                runner=self._runner,
                change=partial(self._change_tables, plan),
            )
        self._progress(Progress("publish", f"{written.records:,} records", plan.batch_id))
        with _timed(seconds, "publish"):
            decision = self._publish(planned, written)
        return _report(planned, written, decision, seconds)

    def keep_alive(self) -> None:
        """Re-commit the positions of a pipeline that has published nothing for a while (see `KEEP_ALIVE_AFTER_S`)."""
        if is_due(self._session.log.state, time.time_ns() // 1_000_000):
            self._progress(Progress("publish", "keeping the group's offsets from expiring"))
            self._session.publisher.keep_alive()

    def has_news(self) -> bool:
        """Something to read, or a pause to obey."""
        return any(self._planner.look().lag().values()) or self.paused is not None

    @property
    def paused(self) -> Paused | None:
        """The pause in effect, by what was read of the log so far."""
        return self._session.log.state.paused

    def _plan(self) -> Planned | None:
        """None if there is nothing to read, or the pipeline is paused.

        The pause is looked for before `START_COMMIT` is written and once more in what was read of the log after it:
        whoever pauses and then reads the log so finds the batch there, or the batch gives way.
        """
        source = self._begin(self._planner.look())
        planned = None if self.paused else self._planner.next(source)
        return None if self.paused else planned

    def _begin(self, source: Source) -> Source:
        """Put the start positions in place once there is a topic; the source as it is then."""
        if self._session.log.state.last_publish is not None or not source.topics:
            return source
        self._planner.bootstrap(source)
        return self._planner.look()

    def _load_tables(self, plan: BatchPlan) -> dict[str, Table]:
        """The tables that the batch may feed as they are now, those of new topics created; a finding on one of them
        stops before anything is written.
        """
        session = self._session
        names = session.pipeline.tables_of({part.topic for part in plan.ranges if part.span})
        loaded = self._load(names)
        new = [name for name, found in loaded.items() if found is None and name not in self._seen]
        if new:
            check_new((table for table in session.pipeline.tables if table.name in new), session.log.state)
            session.create_missing(new)
            loaded |= self._load(new)
        self._seen.update(names)
        gone = sorted(name for name, found in loaded.items() if found is None)
        if gone:
            raise TableUnusable(f"{', '.join(gone)}: dropped while this run was at work", hint="run again")
        return {name: found[0] for name, found in loaded.items() if found is not None}

    def _load(self, names: Iterable[str]) -> dict[str, tuple[Table, TableView] | None]:
        committer = self._session.committer()
        return {name: committer.load_checked(name) for name in names}

    def _change_tables(self, plan: BatchPlan, wanted: Mapping[str, Schema]) -> dict[str, Table]:
        """Give tables what records need, as far as their `evolve` allows, and load all as `_load_tables` does."""
        give(self._session, wanted, self._progress, new=wanted.keys() - self._seen)
        return self._load_tables(plan)

    def _publish(self, planned: Planned, written: WrittenBatch) -> Decision:
        session, plan = self._session, planned.plan
        events = [
            *data_written(written, session.pipeline_id),
            data_complete(
                written,
                pipeline_id=session.pipeline_id,
                high_watermarks=planned.high_watermarks,
                timestamp_types=planned.source.timestamp_types,
                ledger_table=session.pipeline.ledger_table,
            ),
        ]
        positions = {r.at: Position(r.end, plan.batch_id) for r in plan.ranges}

        def after_fence(found: Positions, state: CommitState) -> Decision:
            decision = decide(plan, found, state)
            if decision.verdict is not Verdict.ALREADY_PUBLISHED:
                check_topics(session, plan.topic_ids)
            return decision

        return session.publisher.publish(after_fence, events, positions)


def run_pipeline(
    session: Session,
    runner: SparkRunner,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    on_batch: OnBatch | None = None,
    on_commit: OnCommit | None = None,
    committing: bool = True,
) -> RunReport:
    """Go through `run_steps`; `on_batch` and `on_commit` are told of each."""
    report = RunReport()
    steps = run_steps(session, runner, report, bounds=bounds, on_progress=on_progress, committing=committing)
    for step in steps:
        if isinstance(step, BatchReport):
            if on_batch:
                on_batch(step)
        elif on_commit:
            on_commit(step)
    return report


def run_steps(
    session: Session,
    runner: SparkRunner,
    report: RunReport,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    committing: bool = True,
) -> Iterator[BatchReport | CommitReport]:
    """Run one pipeline until it is caught up, `bounds` (default: the pipeline file's) are reached, or it is paused.

    Gives each batch once it is published (or is stale), and each commit that did something, before the failure of one
    of its tables is raised; `report` has all of it and says at the end why it ended. A stale batch ends the run without
    an error: another run is at work, and has published or will publish those records. A batch that orphan removal gave
    up nobody else will publish: its records are planned again. Raises FindingError if the pipeline must stop; what was
    committed until then stays. Unless `committing`, what is published waits for a commit by somebody else.
    """
    bounds = bounds or Bounds.of(session.pipeline)
    progress = on_progress or (lambda _progress: None)
    ingest = Ingest(session, runner, on_progress=on_progress)
    deadline = time.monotonic() + bounds.max_duration_s
    ingest.bind()
    if ingest.paused:
        report.ended = str(ingest.paused)
        return
    commits = _Commits(session, report, progress, wanted=committing)
    # Before anything may stop the run: a table with a finding must not hold up what is published for the others.
    yield from commits.commit(everything=True)
    ingest.prepare()
    for batch in _batches(ingest, bounds, deadline, report, progress):
        report.batches.append(batch)
        yield batch
        if batch.given_up:
            progress(Progress("plan", batch.why, batch.batch_id))
            continue
        if batch.verdict is Verdict.STALE:
            report.ended = f"stale batch: {batch.why}"
            break
        yield from commits.after_batch()
    if not report.batches:
        ingest.keep_alive()
    if any(batch.published for batch in report.batches) or not ingest.paused:
        # A pause lets a run commit what it has published itself.
        yield from commits.commit(everything=False)
    if not ingest.paused:
        for job in _history(session, runner, progress):
            report.history.append(job)
            yield from commits.commit(everything=False)
    progress(Progress("end", report.ended))


def _history(session: Session, runner: SparkRunner, progress: OnProgress) -> Iterator[RangeReport]:
    """The range jobs for tables that were added with `history: replay`, until nothing is left or another run does it.

    After the new records: these are waited for, and from the first batch that feeds the table the rest only grows by
    what processes with the old file still publish.
    """
    jobs = RangeJobs(session, runner, on_progress=progress, committing=False)
    for table in session.pipeline.tables:
        if table.history == "replay" and session.log.state.unfed_batches(table.name) > 0:
            yield from (report for report in jobs.history_to_end(table.name) if report.batch_id)


def _batches(
    ingest: Ingest, bounds: Bounds, deadline: float, report: RunReport, progress: OnProgress
) -> Iterator[BatchReport]:
    """Batches until there is nothing to read for `linger_s`, a bound is reached or the pipeline is paused."""
    done = 0
    while True:
        if done >= bounds.max_batches or time.monotonic() >= deadline:
            report.stopped_early = True
            report.ended = f"bound reached: {done} batches of run.max_batches {bounds.max_batches}, or run.max_duration"
            return
        batch = ingest.next_batch()
        if batch is not None:
            done += not batch.given_up
            yield batch
        elif ingest.paused:
            report.ended = str(ingest.paused)
            return
        elif not _more_within(ingest, min(time.monotonic() + bounds.linger_s, deadline), progress):
            report.ended = "caught up"
            return


def _more_within(ingest: Ingest, until: float, progress: OnProgress) -> bool:
    """Wait for new records or a pause, at most until `until` (monotonic seconds)."""
    if time.monotonic() < until:
        progress(Progress("wait", "caught up; waiting for more records"))
    while time.monotonic() < until:
        if ingest.has_news():
            return True
        time.sleep(LINGER_POLL_S)
    return False


class _Commits:
    """When a run commits: after each batch, or each `commit.every` seconds and at its end; never unless `wanted`."""

    def __init__(self, session: Session, report: RunReport, progress: OnProgress, *, wanted: bool) -> None:
        self._session = session
        self._report = report
        self._progress = progress
        self._wanted = wanted
        every = session.pipeline.config.commit.every
        self._every_s = 0.0 if every == "batch" else float(every)
        self._last = time.monotonic()

    def after_batch(self) -> Iterator[CommitReport]:
        if time.monotonic() - self._last >= self._every_s:
            yield from self.commit(everything=False)

    def commit(self, *, everything: bool) -> Iterator[CommitReport]:
        """`everything` looks at tables without news too, so that findings on them show."""
        if not self._wanted:
            return
        self._progress(Progress("commit", "taking what is published into the tables"))
        tables = self._session.pipeline.table_names if everything else ()
        after_publish = bool(self._report.batches or self._report.history)
        report = self._session.coordinator().commit(tables=tables, after_publish=after_publish)
        self._last = time.monotonic()
        if report.commits or report.failed:
            self._report.commits.append(report)
            yield report
        report.raise_failures()


def _report(planned: Planned, written: WrittenBatch, decision: Decision, seconds: dict[str, float]) -> BatchReport:
    plan = planned.plan
    return BatchReport(
        batch_id=plan.batch_id,
        verdict=decision.verdict,
        why=decision.why,
        ranges=tuple((r.topic, r.partition, r.start, r.end) for r in plan.ranges if r.span),
        records=written.records,
        dead_lettered=sum(c.dead_lettered for c in written.counts),
        tombstones=sum(c.tombstones for c in written.counts),
        gaps=sum(c.gaps for c in written.counts),
        value_bytes=written.value_bytes,
        rows={output.table: output.rows for output in written.tables},
        lag_after=sum(planned.source.lag().values()) - (0 if decision.given_up else plan.offsets),
        seconds=seconds,
        given_up=decision.given_up,
        unrouted=sum(c.unrouted for c in written.counts),
    )


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Generator[None]:
    started = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - started, 3)

"""Range jobs: ranges that were published before are read again, for one table.

    refill    what a table with a finding lost; the commit of it is the resolution
    history   what was published before the table was added to the pipeline

They go the way of a batch: files, one transaction with the events, a commit. No position moves; what the transaction
compares and moves instead is the token, so that of two jobs planned on the same state one becomes stale.

Crash points, and what the next one finds (docs/design.md has the whole table; the transaction has those of publish):

    range.after-create          a table that was dropped is there again, empty: the finding is `table-recreated`
    range.after-start-commit    a START_COMMIT without files
    range.after-files           files that nobody names: orphans; the next job reads the same ranges
    range.after-manifests       as above
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from sink_core.batch import PartitionCounts, TableOutput
from sink_core.commit.table import TableCommit
from sink_core.commit.view import TableView
from sink_core.control.decision import Decision, Verdict
from sink_core.control.events import StartCommit
from sink_core.control.state import CommitState
from sink_core.errors import TableUnusable
from sink_core.failpoints import reach
from sink_core.finding import Finding
from sink_core.offsets import NO_TOKEN, Position, Positions
from sink_core.planning import check_topics
from sink_core.range_jobs.decision import decide
from sink_core.range_jobs.job import RangePlan, events, ranges_of, tasks_of
from sink_core.range_jobs.look import check_readable, dead_letters_in, ledger_rows, token_and_log
from sink_core.range_jobs.lost import losses, lost_offsets
from sink_core.range_jobs.missing import missing
from sink_core.range_jobs.resolving import REFILLED, resolution, resolves
from sink_core.session import Session
from sink_core.tables.create import ensure_tables
from sink_core.tables.outputs import output_of
from sink_core.tables.usable import check_usable
from sink_core.verify.ledger import LedgerRow
from spark_jobs.ingest import run_tasks, task_spec
from spark_jobs.runner import SparkRunner
from spark_jobs.steps import OnProgress, Progress

Planned = tuple[RangePlan, Table]


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What became of a range job. `batch_id` is empty, and `ended` says why, if there was nothing to do.

    `ranges` are (topic, partition, start, end); `commit` is what the table took in, also of what was published before.
    """

    table: str
    ended: str
    batch_id: str = ""
    ranges: tuple[tuple[str, int, int, int], ...] = ()
    rows: int = 0
    verdict: Verdict | None = None
    commit: TableCommit | None = None


class RangeJobs:
    """Plans, writes, publishes and commits range jobs of one pipeline, which must be bound.

    Unless `committing`, what is published waits for a commit by somebody else.
    """

    def __init__(
        self,
        session: Session,
        runner: SparkRunner,
        *,
        on_progress: OnProgress | None = None,
        committing: bool = True,
    ) -> None:
        self._session = session
        self._runner = runner
        self._progress = on_progress or (lambda _progress: None)
        self._committing = committing

    def refill(self, table: str) -> RangeReport:
        """Read again what a table with a finding lost, and commit it, which resolves the finding.

        Raises TableUnusable if that can't be known or retention has taken it, FindingError if the finding is of a kind
        that can't be refilled or stands all the same: the table was changed again since the job was planned.
        """
        self._require_data_table(table)
        return self._job(table, lambda token, state: self._plan_refill(table, token, state))

    def history(self, table: str) -> RangeReport:
        """Read what was published without the table, as much as fits `batch.max_records`.

        To be called until it has nothing to do: a process with the old configuration may publish in between. Raises as
        `refill` does.
        """
        self._require_data_table(table)
        return self._job(table, lambda token, state: self._plan_history(table, token, state))

    def history_to_end(self, table: str) -> Iterator[RangeReport]:
        """`history` until nothing is left, or another range job was faster; the last report says which."""
        while True:
            report = self.history(table)
            yield report
            if report.verdict in (None, Verdict.STALE):
                return

    def _require_data_table(self, table: str) -> None:
        pipeline = self._session.pipeline
        pipeline.require_tables([table])
        if table in (pipeline.ledger_table, pipeline.dead_letter_table):
            raise TableUnusable(
                f"{table}: its rows are not in Kafka, they can't be read again",
                hint="choose `recommit`, which takes its files in again",
            )

    def _job(self, table: str, make: Callable[[Position, CommitState], Planned | str]) -> RangeReport:
        session = self._session
        self._progress(Progress("plan", f"looking for what {table} lacks"))
        token, state = token_and_log(session)
        if state.paused:
            return RangeReport(table, str(state.paused))
        made = make(token, state)
        if isinstance(made, str):
            return RangeReport(table, made, commit=self._commit(table))
        plan, loaded = made
        self._announce(plan)
        self._progress(Progress("write", f"{plan.offsets:,} offsets again for {table}", plan.batch_id, plan.offsets))
        output, counts = self._write(plan, loaded)
        self._progress(Progress("publish", f"{output.rows:,} rows for {table}", plan.batch_id))
        decision = self._publish(plan, output, counts)
        return RangeReport(
            table,
            decision.why,
            plan.batch_id,
            tuple((r.topic, r.partition, r.start, r.end) for r in plan.ranges),
            output.rows,
            decision.verdict,
            None if decision.verdict is Verdict.STALE else self._commit(table),
        )

    def _plan_refill(self, table: str, token: Position, state: CommitState) -> Planned | str:
        loaded, view, finding = self._with_finding(table)
        if finding is None:
            return f"nothing to do: {table} has no finding"
        if finding.name not in REFILLED:
            raise finding.error(str(self._session.pipeline.path))
        if resolution(view, state, finding.name) is not None:
            return f"{table}: a range job that resolves {finding.name} was published before"
        found = losses(view, state)
        names = resolves(view, finding.name, found.covers_offset)
        rows = ledger_rows(self._session)
        offsets = lost_offsets(found, rows, state)
        plan = RangePlan(str(uuid.uuid4()), table, token, ranges_of(offsets), 0, {}, names)
        return self._with_topics(plan, rows), loaded

    def _with_finding(self, table: str) -> tuple[Table, TableView, Finding | None]:
        """The table, created again if it was dropped."""
        session = self._session
        found = session.committer().examine(table)
        if found.table is None and found.finding is not None:
            ensure_tables(session.catalog, session.pipeline, session.sample_values, names=(table,))
            reach("range.after-create")
            found = session.committer().examine(table)
        if found.table is None or found.view is None:
            raise TableUnusable(f"{table}: dropped while this run was at work", hint="run again")
        return found.table, found.view, found.finding

    def _plan_history(self, table: str, token: Position, state: CommitState) -> Planned | str:
        session, nothing = self._session, f"nothing to do: every batch has fed {table}, or was read again for it"
        if state.unfed_batches(table) == 0:
            return nothing
        found = session.committer().load_checked(table)
        if found is None:
            raise TableUnusable(f"{table}: dropped while this run was at work", hint="run again")
        rows = ledger_rows(session)
        lacking = missing(table, rows, state, max_offsets=session.pipeline.config.batch.max_records)
        if not lacking.batches:
            return nothing
        ranges = ranges_of(lacking.offsets)
        plan = RangePlan(str(uuid.uuid4()), table, token, ranges, lacking.batches, {})
        return self._with_topics(plan, rows), found[0]

    def _with_topics(self, plan: RangePlan, rows: list[LedgerRow]) -> RangePlan:
        """The plan with its topics' UUIDs; they and what Kafka still holds are checked."""
        wanted = {r.topic for r in plan.ranges}
        topic_ids = {row.topic: row.topic_id for row in rows if row.topic in wanted}
        check_readable(self._session, plan.ranges, topic_ids)
        return replace(plan, topic_ids=topic_ids)

    def _announce(self, plan: RangePlan) -> None:
        session = self._session
        session.log.append(
            StartCommit(
                pipeline_id=session.pipeline_id,
                batch_id=plan.batch_id,
                predecessor=plan.token.metadata,
                file_prefix=f"calve-{plan.batch_id}",
                config_fingerprint=session.pipeline.config_fingerprint,
            )
        )
        reach("range.after-start-commit")

    def _write(self, plan: RangePlan, loaded: Table) -> tuple[TableOutput, list[PartitionCounts]]:
        """The files of the one table. What is a dead letter already is left there.

        Raises BadRecord for a record that the table can't take and that was not set aside when it was published.
        """
        session, pipeline = self._session, self._session.pipeline
        check_usable(loaded.metadata, table=plan.table)
        dead = session.committer().load_checked(pipeline.dead_letter_table)
        if dead is None:
            raise TableUnusable(f"{pipeline.dead_letter_table}: dropped while this run was at work", hint="run again")
        spec = task_spec(plan.batch_id, pipeline, {plan.table: loaded, pipeline.dead_letter_table: dead[0]})
        spec = replace(spec, stop_on_bad_record=True, skip=dead_letters_in(session, plan.ranges))
        results = run_tasks(spec, tasks_of(plan.ranges, self._runner.parallelism()), self._runner)
        reach("range.after-files")
        files = [file for result in results for file in result.files[plan.table]]
        output = output_of(plan.batch_id, plan.table, loaded, files)
        reach("range.after-manifests")
        return output, [counts for result in results for counts in result.counts]

    def _publish(self, plan: RangePlan, output: TableOutput, counts: list[PartitionCounts]) -> Decision:
        session, token = self._session, self._session.publisher.token

        def after_fence(found: Positions, state: CommitState) -> Decision:
            decision = decide(plan.batch_id, plan.token, found.get(token, NO_TOKEN), state)
            if decision.verdict is Verdict.PUBLISH:
                check_topics(session, plan.topic_ids)
            return decision

        moved = {token: Position(plan.token.offset + 1, plan.batch_id)}
        return session.publisher.publish(after_fence, events(plan, output, counts, session.pipeline_id), moved)

    def _commit(self, table: str) -> TableCommit | None:
        """Take what is published into the table; raises what stands against that."""
        if not self._committing:
            return None
        self._progress(Progress("commit", f"taking what is published into {table}"))
        report = self._session.coordinator().commit(tables=[table], after_publish=True)
        if table in report.failed:
            raise report.failed[table]
        return next((commit for commit in report.commits if commit.table == table), None)

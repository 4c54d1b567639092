"""Range jobs: ranges that were published before are read again, for one table.

    refill    what a table with a finding lost; the commit of it is the resolution
    history   what was published before the table was added to the pipeline
    replay    what the table has already: its rows of the ranges are replaced

They go the way of a batch: files, one transaction with the events, a commit. No position moves; what the transaction
compares and moves instead is the token, so that of two jobs planned on the same state one becomes stale.

Crash points, and what the next one finds (docs/design.md has the whole table; the transaction has those of publish):

    range.after-create          a table that was dropped is there again, empty: the finding is `table-recreated`
    range.after-start-commit    a START_COMMIT without files
    range.after-files           files that nobody names: orphans; the next job reads the same ranges
    replay.after-files          as above, with files in place of those of the table that hold rows of the ranges
    range.after-manifests       as above
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import CommitConflict, FindingError, TableUnusable
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.iceberg.files.kafka_rows import runs_of
from calve.sink_core.iceberg.format.table import IcebergTable, iceberg
from calve.sink_core.iceberg.replace.head_files import replacement
from calve.sink_core.offset_sets import ranges_of
from calve.sink_core.offsets import OffsetRange, Position
from calve.sink_core.report import Line
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.loop.announcing import announce
from calve.sink_core.sink.loop.fitting import Tables, give, write_with_evolution
from calve.sink_core.sink.loop.job import Publication, carry_out, commit_published
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.loop.writing import task_spec
from calve.sink_core.sink.range_jobs.job import RangePlan, events, read_again, tasks_of
from calve.sink_core.sink.range_jobs.look import by_token, check_readable, dead_letters_in, ledger_rows, token_and_log
from calve.sink_core.sink.range_jobs.lost import losses, lost_offsets
from calve.sink_core.sink.range_jobs.missing import missing
from calve.sink_core.sink.range_jobs.replacing import (
    Replacing,
    check_not_compacted,
    check_replaceable,
    ranges_to_replace,
    replacing,
)
from calve.sink_core.sink.range_jobs.rewrite import RewriteSpec, rewrite_files
from calve.sink_core.sink.range_jobs.selected import Wanted, check_same
from calve.sink_core.sink.write.task import TaskResult
from calve.sink_core.tables.batch import TableOutput
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.history.resolving import REFILLED, resolution, resolves
from calve.sink_core.tables.log.range_parts import Replaces
from calve.sink_core.tables.log.state import CommitState

REPLAYS = 3
"""How often a replay is started again whose files somebody else rewrote before its commit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job, the table as it was loaded for it, and what it takes the place of, if it does."""

    plan: RangePlan
    table: LoadedTable
    replacing: Replacing | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a job has written, and what became of the offsets of each slice that was read."""

    output: TableOutput
    counts: list[PartitionCounts]
    replaces: Replaces | None


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What became of a range job. `batch_id` is empty, and `ended` says why, if there was nothing to do.

    `ranges` are (topic, partition, start, end); `commit` says what was committed, also of what was published before.
    `replaced` rows were in the table, in place of which `rows` are now.
    """

    table: str
    ended: str
    batch_id: str = ""
    ranges: tuple[tuple[str, int, int, int], ...] = ()
    rows: int = 0
    verdict: Verdict | None = None
    commit: TableCommit | None = None
    replaced: int = 0

    def to_json(self) -> dict[str, Any]:
        """Snapshot ids as text: they exceed what JSON readers keep exactly."""
        commit = {**asdict(self.commit), "snapshot_id": str(self.commit.snapshot_id)} if self.commit else None
        return {**asdict(self), "verdict": self.verdict.value if self.verdict else None, "commit": commit}

    def lines(self) -> Iterator[Line]:
        if self.verdict is None:
            yield Line(self.ended)
        else:
            replaced = f" in place of {self.replaced:,}" if self.replaced else ""
            done = f"{self.verdict.value}: {self.rows:,} rows{replaced}; {self.ended}"
            yield Line(f"range job {self.batch_id}: {done}")


@dataclass(frozen=True, slots=True)
class RangePreview:
    """What a replay would read again, and what it would replace: `rows` of the ranges by the ledger, in `files` of
    `bytes` that would be written anew with whatever other rows they have. `ranges` are (topic, partition, start, end).

    `ended` says why there is nothing to do, if so.
    """

    table: str
    ended: str = ""
    ranges: tuple[tuple[str, int, int, int], ...] = ()
    offsets: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0


class RangeJobs:
    """Plans, writes, publishes and commits range jobs of one pipeline, which must be bound.

    Unless `committing`, what is published waits for a commit by somebody else.
    """

    def __init__(
        self,
        session: Session,
        *,
        on_progress: OnProgress | None = None,
        committing: bool = True,
    ) -> None:
        self._session = session
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

    def replay(self, table: str, wanted: Wanted) -> RangeReport:
        """Read again what the table has of the ranges, and put it in place of the rows that are there, in one commit.

        Started again if somebody else rewrote the files that it replaces meanwhile. Raises TableUnusable for what
        can't be replaced, CommitConflict if others were faster `REPLAYS` times, FindingError as any commit does.
        """
        self._require_data_table(table)
        report = RangeReport(table, "")
        for _ in range(REPLAYS):
            _token, state = token_and_log(self._session)
            if state.paused:
                return RangeReport(table, str(state.paused))
            # Only what the table has can be replaced.
            self.commit(table)
            report = self._job(table, lambda token, state: self._plan_replay(table, token, state, wanted))
            if report.verdict in (None, Verdict.STALE) or self._holds(table, report.batch_id):
                return report
        raise CommitConflict(
            f"{table}: range job {report.batch_id} was dropped, as {REPLAYS - 1} before it: others rewrote the files "
            "that it was to replace, before its commit",
            hint="nothing was changed; start the replay again when compaction and other rewrites are over",
            code=Code.REWRITTEN,
        )

    def preview(self, table: str, wanted: Wanted) -> RangePreview:
        """What `replay` would do now, what is not committed yet left out. Writes nothing. Raises as `replay` does."""
        self._require_data_table(table)
        token, state = token_and_log(self._session)
        made = self._plan_replay(table, token, state, wanted)
        if isinstance(made, str) or made.replacing is None:
            return RangePreview(table, str(made))
        files, expected = made.replacing.files, made.replacing.expected
        return RangePreview(
            table,
            ranges=_shown(made.plan.ranges),
            offsets=made.plan.offsets,
            rows=sum(expected.values()),
            files=len(files),
            bytes=sum(file.size for file in files),
        )

    def _holds(self, table: str, batch_id: str) -> bool:
        found = self._session.load([table])[table]
        return found is not None and batch_id in found.view.held

    def _require_data_table(self, table: str) -> None:
        pipeline = self._session.pipeline
        pipeline.require_tables([table])
        if table in (pipeline.ledger_table, pipeline.dead_letter_table):
            raise TableUnusable(
                f"{table}: its rows are not in Kafka, they can't be read again",
                hint="choose `recommit`, which takes its files in again",
                code=Code.NOT_FROM_KAFKA,
            )
        if table in pipeline.changing:
            raise TableUnusable(
                f"{table}: takes row changes, and records read again would be put over newer ones",
                hint="of a table that was rolled back put main back to the tagged snapshot, or choose `accept`",
                code=Code.CHANGES_READ_AGAIN,
            )

    def _job(self, table: str, make: Callable[[Position, CommitState], Planned | str]) -> RangeReport:
        session = self._session
        self._progress(Progress("plan", f"looking for what {table} lacks"))
        token, state = token_and_log(session)
        if state.paused:
            return RangeReport(table, str(state.paused))
        made = make(token, state)
        if isinstance(made, str):
            return RangeReport(table, made, commit=self.commit(table))
        plan = made.plan
        instant_ms = announce(session, plan.batch_id, plan.token.metadata, "range job").instant_ms
        reach("range.after-start-commit")
        self._progress(Progress("write", f"{plan.offsets:,} offsets again for {table}", plan.batch_id, plan.offsets))

        def write() -> tuple[Written, Publication]:
            written = self._write(made, instant_ms)
            made_events = events(
                plan, written.output, written.counts, session.pipeline_id, written.replaces, instant_ms
            )
            what = f"{written.output.rows:,} rows for {table}"
            return written, by_token(session, what, plan.batch_id, plan.token, made_events, plan.topic_ids)

        written, decision = carry_out(session, plan.batch_id, write, self._progress)
        assert decision is not None
        return RangeReport(
            table,
            decision.why,
            plan.batch_id,
            _shown(plan.ranges),
            written.output.rows,
            decision.verdict,
            None if decision.verdict is Verdict.STALE else self.commit(table),
            written.replaces.rows if written.replaces else 0,
        )

    def _plan_refill(self, table: str, token: Position, state: CommitState) -> Planned | str:
        loaded, error = self._with_finding(table)
        if error is None:
            return f"nothing to do: {table} has no finding"
        if error.finding not in REFILLED:
            raise error
        if resolution(loaded.view, state, error.finding) is not None:
            return f"{table}: a range job that resolves {error.finding} was published before"
        found = losses(loaded.view, state)
        names = resolves(loaded.view, state, error.finding, found.covers_offset)
        rows = ledger_rows(self._session)
        offsets = lost_offsets(found, rows, state)
        plan = RangePlan(str(uuid.uuid4()), table, token, ranges_of(offsets), 0, {}, names)
        return Planned(self._with_topics(plan, rows), loaded)

    def _with_finding(self, table: str) -> tuple[LoadedTable, FindingError | None]:
        """The table, created again if it was dropped."""
        session = self._session
        found = session.look(table)
        if found.table is None and found.finding is not None:
            session.create_missing([table])
            reach("range.after-create")
            found = session.look(table)
        if found.table is None:
            raise dropped_meanwhile(table)
        return found.table, found.finding

    def _plan_history(self, table: str, token: Position, state: CommitState) -> Planned | str:
        session, nothing = self._session, f"nothing to do: every batch has fed {table}, or was read again for it"
        if state.unfed_batches(table) == 0:
            return nothing
        found = session.load([table])[table]
        if found is None:
            raise dropped_meanwhile(table)
        rows = ledger_rows(session)
        lacking = missing(table, rows, state, max_offsets=session.pipeline.config.batch.max_records)
        if not lacking.batches:
            return nothing
        ranges = ranges_of(lacking.offsets)
        plan = RangePlan(str(uuid.uuid4()), table, token, ranges, lacking.batches, {})
        return Planned(self._with_topics(plan, rows), found)

    def _plan_replay(self, table: str, token: Position, state: CommitState, wanted: Wanted) -> Planned | str:
        session = self._session
        rows = ledger_rows(session)
        session.log.refresh_to_end()
        found = session.load([table])[table]
        if found is None:
            raise dropped_meanwhile(table)
        ranges = ranges_to_replace(found.view, state, rows, wanted)
        if not ranges:
            return f"nothing to do: the table {table} has nothing of that"
        if not isinstance(found, IcebergTable):
            raise TableUnusable(
                f"{table}: its rows can't be replaced: that is for tables in Iceberg's format",
                hint="replay other tables; to read all of this one again drop it, and choose `refill`",
                code=Code.NOT_REPLACED,
            )
        check_replaceable(session, found.table, table)
        check_not_compacted(session, ranges)
        plan = self._with_topics(RangePlan(str(uuid.uuid4()), table, token, ranges, 0, {}), rows)
        return Planned(plan, found, replacing(found.table, found.view, ranges, rows, state.range_jobs_of(table)))

    def _with_topics(self, plan: RangePlan, rows: list[LedgerRow]) -> RangePlan:
        """The plan with its topics' UUIDs; they and what Kafka still holds are checked."""
        wanted = {r.topic for r in plan.ranges}
        topic_ids = {row.topic: row.topic_id for row in rows if row.topic in wanted}
        check_readable(self._session, plan.ranges, topic_ids)
        return replace(plan, topic_ids=topic_ids)

    def _write(self, made: Planned, instant_ms: int) -> Written:
        """The files of the one table. What is a dead letter already is left there.

        Raises BadRecord for a record that the table can't take and that was not set aside when it was published.
        """
        session, pipeline, plan, loaded = self._session, self._session.pipeline, made.plan, made.table
        engine = session.engine
        letters = session.load([pipeline.dead_letter_table])
        dead = letters[pipeline.dead_letter_table]
        if dead is None:
            raise dropped_meanwhile(pipeline.dead_letter_table)
        letters, skip = {pipeline.dead_letter_table: dead}, dead_letters_in(session, plan.ranges)

        def write(tables: Tables, evolving: bool) -> list[TaskResult]:
            tables[plan.table].check_usable()
            spec = task_spec(plan.batch_id, pipeline, tables, instant_ms=instant_ms, evolving=evolving)
            spec = replace(spec, stop_on_bad_record=True, skip=skip)
            return engine.write(spec, tasks_of(plan.ranges, engine.parallelism(plan.offsets)))

        def change(wanted: Mapping[str, Schema]) -> Tables:
            give(session, wanted, self._progress)
            return {plan.table: self._load(plan.table), **letters}

        tables, results = write_with_evolution({plan.table: loaded, **letters}, write, change)
        loaded = tables[plan.table]
        reach("range.after-files")
        counts = [counts for result in results for counts in result.counts]
        replaces = None
        if made.replacing is not None:
            check_same(plan.table, read_again(plan, counts), made.replacing.expected)
            self._progress(Progress("write", f"{len(made.replacing.files)} files of {plan.table}", plan.batch_id))
            [target] = task_spec(plan.batch_id, pipeline, tables, instant_ms=instant_ms).tables
            rewrite = RewriteSpec(pipeline.group, plan.batch_id, target.target, runs_of(plan.ranges))
            files, head = made.replacing.files, made.replacing.base_snapshot_id
            rewritten = rewrite_files(rewrite, files, engine)
            reach("replay.after-files")
            replaces = replacement(plan.batch_id, plan.table, iceberg(loaded), head, files, rewritten)
        written = [file for result in results for file in result.files[plan.table]]
        output = loaded.output(plan.batch_id, written)
        reach("range.after-manifests")
        return Written(output, counts, replaces)

    def _load(self, name: str) -> LoadedTable:
        """The table as it is, whatever finding stands against it."""
        found = self._session.look(name)
        if found.table is None:
            raise dropped_meanwhile(name)
        return found.table

    def commit(self, table: str) -> TableCommit | None:
        """What was committed to the table of what is published, None if nothing. Raises what stands against that."""
        if not self._committing:
            return None
        report = commit_published(self._session, [table], self._progress)
        if table in report.failed:
            raise report.failed[table]
        return next((commit for commit in report.commits if commit.table == table), None)


def _shown(ranges: Iterable[OffsetRange]) -> tuple[tuple[str, int, int, int], ...]:
    return tuple((part.topic, part.partition, part.start, part.end) for part in ranges)

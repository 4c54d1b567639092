"""The range job that tries dead letters again: those that fit now go to the tables, and leave with the same publish.

It goes the way of other range jobs: the token, files, one transaction, commits. Its transaction has a `DATA_WRITTEN`
for each table that gets rows and one for the dead letters; so a record leaves where it was exactly if it comes where it
belongs. Tables are committed one by one: for a moment a reader may see it in both or in neither, as with any batch.

Crash points, and what the next one finds (docs/design.md has the whole table):

    range.after-start-commit    a START_COMMIT without files
    range.after-files           files that nobody names: orphans; the next replay tries the same dead letters
    range.after-manifests       as above
    publish.after-commit        published: any commit takes the rows in, and the dead letters out
    letters.after-files         as above; dead letters written again that nobody names
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.schema import Schema
from pyroaring import BitMap64

from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.files.kafka_rows import runs_of
from calve.sink_core.offset_sets import ranges_of, union
from calve.sink_core.offsets import OffsetRange, Position, TopicPartition
from calve.sink_core.sink.dead_letters.choice import Offsets
from calve.sink_core.sink.dead_letters.events import Tried, events
from calve.sink_core.sink.dead_letters.look import DeadLetterPlan, plan_letters
from calve.sink_core.sink.dead_letters.task import DeadLetterResult, Set, try_letters
from calve.sink_core.sink.loop.announcing import announce
from calve.sink_core.sink.loop.coordinator import raise_first
from calve.sink_core.sink.loop.fitting import Tables, give, write_with_evolution
from calve.sink_core.sink.loop.job import Publication, carry_out, commit_published
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.loop.writing import task_spec
from calve.sink_core.sink.range_jobs.look import by_token, token_and_log
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.timing import back_off

TRIES = 20
"""How often in a row a replay is planned again because another range job was published first."""

Job = tuple[str, Tried, Decision | None]
"""A job's id and what it tried; without a decision if nothing came of it."""

OVERTAKEN: Job = "", Tried({}, {}, {}), Decision(Verdict.STALE, "another replay of dead letters was published first")
"""One that was not begun."""


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """What became of a replay of dead letters. `jobs` are the ids of what it has published.

    `moved` are in the tables now, `still_bad` were tried and stay, `left` counts by reason those that can't be tried.
    """

    table: str
    ended: str
    jobs: tuple[str, ...] = ()
    moved: int = 0
    still_bad: int = 0
    left: Mapping[str, int] = field(default_factory=dict[str, int])
    verdict: Verdict | None = None
    commits: tuple[TableCommit, ...] = ()


class DeadLetterJobs:
    """Replays of the dead letters of one pipeline, which must be bound."""

    def __init__(self, session: Session, *, on_progress: OnProgress | None = None) -> None:
        self._session = session
        self._progress = on_progress or (lambda _progress: None)
        self._name = session.pipeline.dead_letter_table

    def replay(self, wanted: Sequence[OffsetRange] = ()) -> DeadLetterReport:
        """Try the dead letters in `wanted`, or all, once each; in jobs of at most `choice.MOST`.

        Planned again if another range job is published meanwhile; after `TRIES` of these in a row the report's verdict
        is STALE. Raises FindingError, TableUnusable for dead letters that can't be told apart, RetriableError, and what
        a table's commit raises: what is published by then is committed by the next one.
        """
        done, moved, stale = Offsets(), 0, 0
        jobs, commits = list[str](), list[TableCommit]()
        while True:
            token, state = token_and_log(self._session)
            if state.paused:
                return self._report(str(state.paused), jobs, moved, done, commits)
            self._commit()
            self._progress(Progress("plan", f"looking at {self._name}"))
            plan = plan_letters(self._session, wanted, done)
            if plan is not None and not plan.chosen.total:
                ended = f"{moved:,} moved" if moved else f"nothing to do: none of {self._name} fits now"
                return self._report(ended, jobs, moved, done, commits, left=plan.chosen.left)
            batch_id, tried, decision = self._job(token, plan) if plan is not None else OVERTAKEN
            if decision is not None and decision.verdict is Verdict.STALE:
                stale += 1
                if stale == TRIES:
                    return self._report(decision.why, jobs, moved, done, commits, verdict=Verdict.STALE)
                back_off(stale, first_s=0.05)
                continue
            stale, moved = 0, moved + tried.number_moved
            done = union([done, tried.left])
            if decision is not None:
                jobs.append(batch_id)
                commits += self._commit()

    def _report(
        self,
        ended: str,
        jobs: Iterable[str],
        moved: int,
        done: Offsets,
        commits: Iterable[TableCommit],
        *,
        left: Mapping[str, int] | None = None,
        verdict: Verdict | None = None,
    ) -> DeadLetterReport:
        still_bad = sum(map(len, done.values()))
        return DeadLetterReport(self._name, ended, tuple(jobs), moved, still_bad, left or {}, verdict, tuple(commits))

    def _job(self, token: Position, plan: DeadLetterPlan) -> Job:
        batch_id = str(uuid.uuid4())
        instant_ms = announce(self._session, batch_id, token.metadata, "range job").instant_ms
        reach("range.after-start-commit")
        tried, decision = carry_out(
            self._session, batch_id, lambda: self._try(batch_id, token, plan, instant_ms), self._progress
        )
        return batch_id, tried, decision

    def _try(
        self, batch_id: str, token: Position, plan: DeadLetterPlan, instant_ms: int
    ) -> tuple[Tried, Publication | None]:
        session, pipeline = self._session, self._session.pipeline
        total = plan.chosen.total
        self._progress(Progress("write", f"trying {total:,} dead letters", batch_id, total))
        runs = runs_of(ranges_of(plan.chosen.offsets))

        def write(tables: Tables, evolving: bool) -> list[DeadLetterResult]:
            # A table that no batch has fed is not created for letters.
            careful = session.log.state.died_at(token.metadata, batch_id)
            spec = task_spec(batch_id, pipeline, tables, instant_ms=instant_ms, evolving=evolving, careful=careful)
            spec = replace(spec, evolving=False)
            results = try_letters(spec, plan.files, runs, session.engine)
            sets = sum((result.sets for result in results), Counter[Set]())
            if len(sets) > 1:
                # The event names offsets once for all tables that it feeds; the others are for the next job.
                results = try_letters(
                    spec, plan.files, runs, session.engine, only=max(sets, key=lambda s: (sets[s], s))
                )
            return results

        def change(wanted: Mapping[str, Schema]) -> Tables:
            raise_first({name: error for name, error in give(session, wanted, self._progress) if error})
            return {**self._load(plan.tables), self._name: plan.letters}

        tables, results = write_with_evolution({**plan.tables, self._name: plan.letters}, write, change)
        reach("range.after-files")
        tried = _tried(results)
        if not tried.moved and not tried.changed:
            return tried, None
        outputs = {
            name: table.output(batch_id, [file for r in results for file in r.files.get(name, ())])
            for name, table in tables.items()
        }
        letters = outputs.pop(self._name)
        reach("range.after-manifests")
        topic_ids = plan.chosen.topic_ids
        fed = [output for output in outputs.values() if output.manifests]
        made = events(batch_id, token, tried, fed, letters, topic_ids, session.pipeline_id, instant_ms)
        what = f"{tried.number_moved:,} dead letters fit"
        return tried, by_token(session, what, batch_id, token, made, topic_ids)

    def _load(self, names: Collection[str]) -> dict[str, LoadedTable]:
        """Tables as they are now; raises what stands against one."""
        return {name: table for name, table in self._session.load(names).items() if table is not None}

    def _commit(self) -> list[TableCommit]:
        """Take what is published into all tables; raises what stands against that."""
        report = commit_published(self._session, self._session.pipeline.table_names, self._progress)
        report.raise_failures()
        return report.landed


def _tried(results: Iterable[DeadLetterResult]) -> Tried:
    results = list(results)
    return Tried(
        _sets(result.moved for result in results),
        _sets(result.changed for result in results),
        _sets(result.same for result in results),
    )


def _sets(parts: Iterable[Mapping[TopicPartition, Sequence[int]]]) -> Offsets:
    return union({at: BitMap64(offsets) for at, offsets in part.items()} for part in parts)

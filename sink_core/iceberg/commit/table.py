"""A commit to one table: load, check, choose events, build, swap, report. Special cases have modules of their own.

Crash points of a commit, and what the next one finds (docs/design.md has the whole table):

    commit.after-check       nothing written
    merge.*                  see sink_core/iceberg/commit/merge.py
    letters.after-files      dead letters written again that nobody names: orphans
    replay.after-manifests   and manifests written again that nobody names: orphans
    commit.after-list        and a manifest list that nobody names: an orphan
    commit.after-swap        the table has the batches and says so itself; the next coordinator only reports it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.append import appended
from calve.sink_core.iceberg.commit.cases import ResolveFinding, ShareSnapshots
from calve.sink_core.iceberg.commit.merge import NO_MERGING, MergeOnBranch, Merging
from calve.sink_core.iceberg.commit.other_pipelines import Coverage, OtherPipelines, coverage_of
from calve.sink_core.iceberg.commit.plan import Built, CommitPlan, SpecialCase
from calve.sink_core.iceberg.commit.preconditions import (
    check_places,
    check_published,
    check_still_there,
    holds_tagged_files,
    manifests_named,
)
from calve.sink_core.iceberg.commit.relisting import RelistDeletes
from calve.sink_core.iceberg.commit.removal import RemoveDeadLetters
from calve.sink_core.iceberg.commit.replace import ReplaceRows
from calve.sink_core.iceberg.commit.report import report
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up, swap
from calve.sink_core.iceberg.commit.view import view_of
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import ReadLog
from calve.sink_core.tables.history.findings import AncestryCut, Identity, compare, dropped
from calve.sink_core.tables.history.record import SummaryKeys, to_summary
from calve.sink_core.tables.history.shares import Share, record_of_snapshot
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.timing import back_off


@dataclass(frozen=True, slots=True)
class Examined:
    """A table as loaded, None if there is none of that name, and what it contradicts the log by."""

    table: Table | None
    view: TableView | None
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class TableCommitter:
    """Commits to the tables of one pipeline. `pipeline_file` only serves the commands in messages, `ledger` is the name
    of the pipeline's ledger, `from_now` are tables that need not have what was published without them. `first_coverage`
    says what it will read, as long as it has not published anything. `merging`: whose row changes Spark merges.
    `made_by` goes into the snapshots, `checked` are manifests that are what was published.
    """

    catalog: Catalog
    tag: str
    keys: SummaryKeys
    now: Identity
    log: ReadLog
    pipeline_file: str
    ledger: str
    others: OtherPipelines
    from_now: Set[str] = frozenset()
    first_coverage: Callable[[], Coverage] | None = None
    merging: Merging = NO_MERGING
    rules: Rules = ALL
    made_by: str = ""
    checked: set[tuple[str, ManifestRef]] = field(default_factory=set[tuple[str, ManifestRef]])

    def commit(self, name: str) -> TableCommit | None:
        """Commit what `name` lacks; None for a table that neither exists nor was ever written to.

        Each attempt starts from the load. Raises FindingError, TableUnusable, CommitConflict after too many lost races,
        UnknownOutcome if the catalog can't be asked what became of an attempt.
        """
        lost_to: Exception | None = None
        for conflicts in range(ATTEMPTS):
            seen = self.examine(name)
            if conflicts and not self.rules.check_is_repeated:
                seen = replace(seen, finding=None)
            if seen.table is None or seen.view is None:
                self._stop_on(seen.finding)
                return None
            plan = CommitPlan.of(seen.table, seen.view, self.log.state, seen.finding, conflicts)
            check_places(plan.table, plan.pending)
            for case in self.special_cases:
                plan = case.choose(plan)
            self._stop_on(plan.finding)
            reach("commit.after-check")
            if not plan.pending:
                return report(plan, self.keys)
            check_still_there(plan.table, plan.events)
            check_published(plan.table, manifests_named(plan.events), self.checked)
            built = self._built(plan)
            if built is None:
                continue
            lost_to = None if built.landed else swap(self.catalog, plan.table, built.attempt)
            if lost_to is None:
                reach("commit.after-swap")
                commit = report(built.plan, self.keys, built.attempt)
                return commit.followed_by(self.commit(name)) if built.plan.more else commit
            back_off(conflicts)
        raise gave_up(name, lost_to)

    @property
    def special_cases(self) -> tuple[SpecialCase, ...]:
        """Each sees the plan as those before it leave it; what none of them has built becomes an append."""
        return (
            ResolveFinding(),
            ReplaceRows(),
            MergeOnBranch(self.tag, self.merging, self._summary),
            RelistDeletes(),
            RemoveDeadLetters(),
            ShareSnapshots(),
        )

    def load_checked(self, name: str) -> tuple[Table, TableView] | None:
        """The table as it is now, compared with the log; None if it neither exists nor is spoken of in the log.

        Raises FindingError.
        """
        seen = self.examine(name)
        self._stop_on(seen.finding)
        return (seen.table, seen.view) if seen.table and seen.view else None

    def examine(self, name: str) -> Examined:
        """The table as it is now, and what contradicts the log.

        The log is read before the table, so that the table is never behind what the log told. Where another coordinator
        has committed more than was read here, the log is read on and the table loaded again. Raises what that was
        broken off by, for this table and for those that come after it.
        """
        self.log.require_whole()
        state = self.log.state
        while True:
            table = load_if_there(self.catalog, name)
            if table is None:
                return Examined(None, None, self._offered(name, dropped(name, state)))
            view = view_of(table.metadata, table=name, tag=self.tag, keys=self.keys)
            if view.stored_offset <= state.next_offset:
                break
            self.log.refresh()
            if view.stored_offset > state.next_offset:
                break
        finding = compare(view, state, self.now)
        if isinstance(finding, AncestryCut):
            with unreachable_as_ours(f"reading the manifests of {name}"):
                proven = not self.rules.cut_ancestry_needs_proof or holds_tagged_files(table, view)
            finding = None if proven else finding.finding
        return Examined(table, view, self._offered(name, finding or self._fed_twice(view, state)))

    def _fed_twice(self, view: TableView, state: CommitState) -> Finding | None:
        if view.others.keys() <= view.adopted:
            return None
        reading = coverage_of(state) or (self.first_coverage() if self.first_coverage else None)
        return self.others.finding(view, reading) if reading else None

    def _stop_on(self, finding: Finding | None) -> None:
        if finding is not None:
            raise finding.error(self.pipeline_file)

    def _offered(self, name: str, finding: Finding | None) -> Finding | None:
        return finding.of_the_ledger() if finding and name == self.ledger else finding

    def _built(self, plan: CommitPlan) -> Built | None:
        """None if the table must be loaded again."""
        for case in self.special_cases:
            step = case.build(plan)
            if not isinstance(step, CommitPlan):
                return step
            plan = step
        return appended(plan, self._summary, self.tag)

    def _summary(self, plan: CommitPlan, share: Share) -> Mapping[str, str]:
        view = plan.view
        own = record_of_snapshot(
            share.events,
            stored_offset=share.stored_offset,
            last_event_id=share.last_event_id,
            given_up=view.latest.given_up if view.latest else (),
            view=view,
            state=plan.state,
            now=self.now,
            from_now=view.table in self.from_now,
            removed=plan.removed,
        )
        return to_summary(self.keys, own, made_by=self.made_by)

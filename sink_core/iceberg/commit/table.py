"""Taking published events into one table: check, build, one compare-and-swap, look.

Crash points of a commit, and what the next one finds (docs/design.md has the whole table):

    commit.after-check       nothing written
    merge.*                  see sink_core/iceberg/commit/merge.py
    letters.after-files      dead letters written again that nobody names: orphans
    replay.after-manifests   and manifests written again that nobody names: orphans
    commit.after-list        and a manifest list that nobody names: an orphan
    commit.after-swap        the table has the batches and says so itself; the next coordinator only reports it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.sink_core.control.events import Logged
from calve.sink_core.errors import TableUnusable
from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.append import Attempt, Step, build_append
from calve.sink_core.iceberg.commit.findings import AncestryCut, Identity, compare, dropped
from calve.sink_core.iceberg.commit.merge import MERGES, NO_MERGING, Merge, Merging, lost_merges
from calve.sink_core.iceberg.commit.other_pipelines import Coverage, OtherPipelines, coverage_of
from calve.sink_core.iceberg.commit.preconditions import check_still_there, holds_tagged_files
from calve.sink_core.iceberg.commit.properties import SnapshotRecord, SummaryKeys, to_summary
from calve.sink_core.iceberg.commit.relisting import with_spec_to_relist
from calve.sink_core.iceberg.commit.removal import Removal, removal
from calve.sink_core.iceberg.commit.replace import Taken, fitting
from calve.sink_core.iceberg.commit.resolving import resolution
from calve.sink_core.iceberg.commit.snapshot_record import Share, gone_of, manifests_of, record_of_snapshot, shares_of
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up, swap
from calve.sink_core.iceberg.commit.view import TableView, rows_told, view_of
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import ReadLog
from calve.sink_core.tables.log.events import DataWritten
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
    `made_by` goes into the snapshots.
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

    def commit(self, name: str) -> TableCommit | None:
        """Take in what `name` lacks; None for a table that neither exists nor was ever written to.

        Each attempt starts from the load. Raises FindingError, TableUnusable, CommitConflict after too many lost races,
        UnknownOutcome if the catalog can't be asked what became of an attempt.
        """
        lost_to: Exception | None = None
        for conflicts in range(ATTEMPTS):
            seen, state = self._seen(name, conflicts), self.log.state
            if seen.table is None or seen.view is None:
                if seen.finding is not None:
                    raise seen.finding.error(self.pipeline_file)
                return None
            table, view = seen.table, seen.view
            pending, stored_offset = self._to_take_in(view, state, seen.finding)
            taken = self._fitting(table, view, pending)
            reach("commit.after-check")
            if not pending:
                return _nothing_new(table, view, conflicts)
            check_still_there(table, taken.events)
            part = self.merging.first_part(name, taken.events)
            rest = taken.events[len(part.events) :]
            taken = replace(taken, events=part.events)
            share = Share(part.events, stored_offset, pending[-1].event.event_id)
            if rest:
                share = Share(part.events, rest[0].offset, part.events[-1].event.event_id)
            if part.merges:
                commit = self._merge(table, view, taken, share, conflicts)
                if commit is not None:
                    return commit.followed_by(self.commit(name)) if rest else commit
                if conflicts + 1 == MERGES:
                    raise lost_merges(name)
                continue
            if with_spec_to_relist(self.catalog, table, manifests_of(taken.events)) is not table:
                # It has a spec more than what was looked at.
                continue
            with unreachable_as_ours(f"taking dead letters out of {name}"):
                out = removal(table, name, taken.events, state)
            shares = [
                (each, self._own(each, view, state, out))
                for each in shares_of(share.events, share.stored_offset, share.last_event_id)
            ]
            attempt = self._build(table, shares, out)
            reach("commit.after-list")
            if attempt is not None:
                lost_to = swap(self.catalog, table, attempt)
                if lost_to is None:
                    reach("commit.after-swap")
                    commit = _landed(view, attempt, taken, [own for _, own in shares], conflicts)
                    return commit.followed_by(self.commit(name)) if rest else commit
            back_off(conflicts)
        raise gave_up(name, lost_to)

    def load_checked(self, name: str) -> tuple[Table, TableView] | None:
        """The table as it is now, compared with the log; None if it neither exists nor is spoken of in the log.

        Raises FindingError.
        """
        seen = self.examine(name)
        if seen.finding is not None:
            raise seen.finding.error(self.pipeline_file)
        return (seen.table, seen.view) if seen.table and seen.view else None

    def examine(self, name: str) -> Examined:
        """The table as it is now, and what contradicts the log.

        The log is read before the table, so that the table is never behind what the log told. Where another coordinator
        has taken in more than was read here, the log is read on and the table loaded again. Raises what that was
        broken off by, for this table and for those that come after it.
        """
        self.log.require_whole()
        state = self.log.state
        while True:
            table = self._load(name)
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

    def _seen(self, name: str, conflicts: int) -> Examined:
        seen = self.examine(name)
        return seen if self.rules.check_is_repeated or not conflicts else replace(seen, finding=None)

    def _fed_twice(self, view: TableView, state: CommitState) -> Finding | None:
        if view.others.keys() <= view.adopted:
            return None
        reading = coverage_of(state) or (self.first_coverage() if self.first_coverage else None)
        return self.others.finding(view, reading) if reading else None

    def _to_take_in(
        self, view: TableView, state: CommitState, finding: Finding | None
    ) -> tuple[Sequence[Logged[DataWritten]], int]:
        """The events for one commit, and the control offset (exclusive) that it stores.

        On a finding they are those of the range job that resolves it: its commit is the resolution. Without one the
        finding is raised.
        """
        if finding is None:
            return state.pending(view.table, view.uuid, view.stored_offset), state.limit
        found = resolution(view, state, finding.name)
        if found is None:
            raise finding.error(self.pipeline_file)
        return found.events, found.stored_offset

    def _fitting(self, table: Table, view: TableView, pending: Sequence[Logged[DataWritten]]) -> Taken:
        if all(logged.event.replaces is None for logged in pending):
            return Taken(pending)
        with unreachable_as_ours(f"reading the manifests of {view.table}"):
            return fitting(table, view, pending, self.rules)

    def _offered(self, name: str, finding: Finding | None) -> Finding | None:
        return finding.of_the_ledger() if finding and name == self.ledger else finding

    def _load(self, name: str) -> Table | None:
        try:
            with unreachable_as_ours(f"loading table {name}"):
                return self.catalog.load_table(name)
        except NoSuchTableError:
            return None

    def _own(self, share: Share, view: TableView, state: CommitState, out: Removal) -> SnapshotRecord:
        return record_of_snapshot(
            share.events,
            stored_offset=share.stored_offset,
            last_event_id=share.last_event_id,
            given_up=view.latest.given_up if view.latest else (),
            view=view,
            state=state,
            now=self.now,
            from_now=view.table in self.from_now,
            removed=out.rows,
        )

    def _merge(self, table: Table, view: TableView, taken: Taken, share: Share, conflicts: int) -> TableCommit | None:
        """All of the events merged into the table; None if others were faster."""
        assert self.merging.changes is not None
        own = self._own(share, view, self.log.state, Removal())
        merge = Merge(self.catalog, table, self.tag, self.merging.changes, self.rules)
        attempt = merge.commit(taken.events, to_summary(self.keys, own, made_by=self.made_by))
        if attempt is None:
            return None
        reach("commit.after-swap")
        return _landed(view, attempt, taken, [own], conflicts)

    def _build(self, table: Table, shares: Sequence[tuple[Share, SnapshotRecord]], out: Removal) -> Attempt | None:
        """The attempt; None if the head that it would be built on has been replaced and expired meanwhile."""
        name = ".".join(table.name())
        # Dead letters, which alone have a removal, are never deleted by key, and taken in by one snapshot.
        steps = [
            Step(
                [*manifests_of(share.events), *out.kept],
                to_summary(self.keys, own, made_by=self.made_by),
                [*gone_of(share.events), *out.gone],
            )
            for share, own in shares
        ]
        try:
            with unreachable_as_ours(f"writing the manifest list of {name}"):
                return build_append(table, steps, tag=self.tag, rules=self.rules)
        except TableUnusable:
            now = self._load(name)
            if now is not None and now.metadata.refs == table.metadata.refs:
                raise
            return None


def _nothing_new(table: Table, view: TableView, conflicts: int) -> TableCommit:
    own, head = view.tagged.own if view.tagged else None, table.current_snapshot()
    commit = TableCommit(
        table=view.table,
        table_uuid=view.uuid,
        snapshot_id=view.tag,
        stored_offset=view.stored_offset,
        valid_through_ms=own.valid_through_ms if own else None,
        landed=False,
        conflicts=conflicts,
    )
    return _with_totals(commit, head.summary.additional_properties if head and head.summary else {})


def _landed(
    view: TableView,
    attempt: Attempt,
    taken: Taken,
    owns: Sequence[SnapshotRecord],
    conflicts: int,
) -> TableCommit:
    own = owns[-1]
    commit = TableCommit(
        table=view.table,
        table_uuid=view.uuid,
        snapshot_id=attempt.snapshot_id,
        stored_offset=own.stored_offset,
        valid_through_ms=own.valid_through_ms,
        landed=True,
        batches=tuple(batch_id for each in owns for batch_id in each.batches),
        rows=sum(logged.event.rows for logged in taken.events),
        files=sum(manifest.files for manifest in manifests_of(taken.events)),
        conflicts=conflicts,
        dropped=taken.dropped,
    )
    return _with_totals(commit, attempt.summary)


def _with_totals(commit: TableCommit, summary: Mapping[str, str]) -> TableCommit:
    """With rows, files and bytes of the table by a snapshot's summary."""
    files, size = (int(summary.get(key, "0")) for key in ("total-data-files", "total-files-size"))
    return replace(commit, total_rows=rows_told(summary), total_files=files, total_bytes=size)

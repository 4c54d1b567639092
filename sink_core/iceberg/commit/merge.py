"""Batches of row changes merged into a table by Spark, on a staging branch of this commit's own.

Crash points, and what the next commit finds; whatever it finds, it merges anew on a branch of another name:

    merge.after-branch    a branch at the head that nobody uses
    merge.after-changes   and on it a snapshot with the changes, which no reader of `main` sees
    merge.after-list      and a manifest list that nobody names: an orphan
    commit.after-swap     the table has the batches and says so itself, and the branch is gone; of many the first
                          merge's, and the next commit goes on behind them
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import CommitConflict, TableUnusable, Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.metadata import without_history
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.changes.merging import (
    Part,
    StagedFile,
    check_known,
    check_mergeable,
    first_part,
    staged_files,
)
from calve.sink_core.iceberg.changes.settings import row_changes_of
from calve.sink_core.iceberg.commit.plan import Attempt, Built, CommitPlan, SpecialCase, Summarize
from calve.sink_core.iceberg.commit.staging import STAGING_MS, Staging, build_merged, dropping, merged_in, staging_of
from calve.sink_core.iceberg.commit.swap import swap
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.tables.batch import ToMerge
from calve.sink_core.tables.history.shares import Events
from calve.sink_core.timing import back_off

MERGES = 3
"""Lost races of a merge before the table stays behind: each costs as much as the merge."""

LONGEST_S = STAGING_MS / 1000
"""What has taken longer is not committed. Orphan removal leaves alone what is less than three days old."""

LOOKS = 10
"""How often the last call of a merge is built: other branches of the table take sequence numbers as well."""

MergeChanges = Callable[[Table, str, Events], None]
"""Merges what the events bring, in their order, into a branch of the table, in one snapshot or none. Raises
CommitConflict if others were in the way, RetriableError for anything else; whether the branch has changed then, does
not matter.
"""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """What an engine is to merge: the changes in `files` into a branch of the table, as `by` says, in one snapshot.

    `metadata` is the table's, without history. The catalog's settings are unresolved: each task reads its own
    environment.
    """

    catalog: CatalogSettings
    table: str
    metadata: str
    files: tuple[StagedFile, ...]
    by: ToMerge
    branch: str


def merge_work(pipeline: SinkPipeline, table: Table, branch: str, events: Events) -> MergeWork:
    """What merges the changes that the events bring. Raises TableUnusable for columns that can't be merged, or by."""
    name, schema = ".".join(table.name()), table.schema()
    by = next((logged.event.to_merge for logged in events if logged.event.added), None)
    if by is None:
        # Published by an earlier version, or when changes were brought in by equality deletes.
        [settings] = [each for each in pipeline.tables if each.name == name]
        changes = row_changes_of(table.metadata, settings)
        by = changes.to_merge if changes else None
    assert by is not None
    check_known(by, schema, table=name)
    check_mergeable(schema, table=name)
    with unreachable_as_ours(f"reading the manifests of {name}"):
        files = staged_files(table.io, events)
    return MergeWork(pipeline.catalog, name, without_history(table.metadata), tuple(files), by, branch)


@dataclass(frozen=True, slots=True)
class Merging:
    """The tables that changes are to be merged into, and by what; None where there is no Spark."""

    tables: Set[str] = frozenset()
    changes: MergeChanges | None = None

    @classmethod
    def of(cls, pipeline: SinkPipeline, merge: Callable[[MergeWork], None] | None) -> Merging:
        """By an engine's `merge`, if it has one."""

        def changes(table: Table, branch: str, events: Events) -> None:
            assert merge is not None
            merge(merge_work(pipeline, table, branch, events))

        return cls(frozenset(table.name for table in pipeline.tables if table.merged), changes if merge else None)

    def first_part(self, name: str, events: Events) -> Part:
        """The events of the next commit to the table. Raises TableUnusable if it merges, and can't do that here."""
        part = first_part(events, merged=name in self.tables)
        if part.merges and self.changes is None:
            raise TableUnusable(
                f"{name}: its changes are merged by Spark, and there is none here",
                hint="calve commit FILE",
                code=Code.MERGED_BY_SPARK,
            )
        return part


NO_MERGING = Merging()


@dataclass(frozen=True, slots=True)
class MergeOnBranch(SpecialCase):
    """Changes that Spark merges have a commit of their own, up to the first event that is not written like them. It
    moves `main` itself, as what was merged may be good for more than one call.
    """

    tag: str
    merging: Merging
    summarize: Summarize

    def build(self, plan: CommitPlan) -> CommitPlan | Built | None:
        """Raises CommitConflict after `MERGES` lost races."""
        name = plan.view.table
        part = self.merging.first_part(name, plan.events)
        if rest := plan.events[len(part.events) :]:
            plan = replace(plan, pending=part.events, events=part.events, stored_offset=rest[0].offset, more=True)
        if not part.merges:
            return plan
        attempt = self._merged(plan, self.summarize(plan, plan.whole))
        if attempt is not None:
            return Built(plan, attempt, landed=True)
        if plan.conflicts + 1 == MERGES:
            raise CommitConflict(
                f"{name}: others committed to the table during each of {MERGES} merges in a row",
                hint="the table stays as it is, and the next try goes on. Let other writers and compaction leave it "
                "alone for as long as a merge takes, or set write_mode: equality_deletes, which needs no such pauses",
                code=Code.MERGE_RACES_LOST,
            )
        return None

    def _merged(self, plan: CommitPlan, summary: Mapping[str, str]) -> Attempt | None:
        """The attempt that landed, under which the table says `summary`; None if others were faster."""
        assert self.merging.changes is not None
        with unreachable_as_ours(f"making a branch of {plan.view.table}"):
            staging = staging_of(plan.table, self.tag)
        began_s = time.time()
        try:
            if not _made(plan, staging):
                return None
            reach("merge.after-branch")
            self.merging.changes(plan.table, staging.name, plan.events)
            reach("merge.after-changes")
            # Files that Spark wrote before it committed them may be taken for orphans when they are old.
            in_time = time.time() - began_s < LONGEST_S
            landed = self._forwarded(plan, staging, summary) if in_time else None
        except CommitConflict:
            landed = None
        except Exception:
            _drop(plan, staging)
            raise
        if landed is None:
            _drop(plan, staging)
        return landed

    def _forwarded(self, plan: CommitPlan, staging: Staging, summary: Mapping[str, str]) -> Attempt | None:
        """`main` moved to what was merged, unless it or the branch has moved."""
        lost_to, name, rules = None, plan.view.table, plan.state.rules
        for look in range(LOOKS):
            if look:
                back_off(look - 1, first_s=0.1, most_s=1.0)
            now = load_if_there(plan.table.catalog, name)
            if now is None:
                return None
            if not rules.merge_asserts_the_parent:
                staging = replace(staging, base=now.metadata)
            merged = merged_in(now.metadata, staging, self.tag)
            if merged is None:
                return None
            try:
                with unreachable_as_ours(f"moving {name} to its merged changes"):
                    attempt = build_merged(now, staging, merged, summary, tag=self.tag, rules=rules)
            except TableUnusable as error:
                # What was merged has been expired since it was loaded: the next look tells.
                lost_to = error
                continue
            reach("merge.after-list")
            lost_to = swap(plan.table.catalog, now, attempt)
            if lost_to is None:
                return attempt
        assert lost_to is not None
        raise Unreachable(
            f"{name}: {LOOKS} attempts to commit a merge failed in a row, the last with {describe(lost_to)}",
            hint="the table stays as it is, and the next try goes on; see the catalog's log",
            code=Code.COMMITS_FAIL,
        )


def _made(plan: CommitPlan, staging: Staging) -> bool:
    """Whether the branch is there. What else may have become of the table, the next look at it says."""
    table, name = plan.table, plan.view.table
    try:
        table.catalog.commit_table(table, staging.call.requirements, staging.call.updates)
    except Exception as error:  # noqa: BLE001 - whatever a catalog raises, only the table knows the outcome
        now = load_if_there(table.catalog, name)
        if now is not None and now.metadata.refs == table.metadata.refs:
            raise Unreachable(
                f"{name}: making a branch for a merge failed: {describe(error)}",
                hint="the table stays as it is, and the next try goes on; does the catalog allow branches?",
                code=Code.MERGE_BRANCH,
            ) from None
        return now is not None and staging.name in now.metadata.refs
    return True


def _drop(plan: CommitPlan, staging: Staging) -> None:
    """Where that fails, the branch goes when it is old."""
    with suppress(Exception):
        now = load_if_there(plan.table.catalog, plan.view.table)
        call = dropping(now.metadata, staging.name) if now is not None else None
        if call is not None:
            plan.table.catalog.commit_table(plan.table, call.requirements, call.updates)

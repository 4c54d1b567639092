"""Batches of row changes merged into a table by Spark, on a staging branch of this commit's own.

Crash points, and what the next commit finds; whatever it finds, it merges anew on a branch of another name:

    merge.after-branch    a branch at the head that nobody uses
    merge.after-changes   and on it a snapshot with the changes, which no reader of `main` sees
    merge.after-list      and a manifest list that nobody names: an orphan
    commit.after-swap     the table has the batches and says so itself, and the branch is gone
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.events import Logged
from calve.sink_core.error_codes.tables import (
    COMMITS_FAIL,
    DROPPED_MEANWHILE,
    MERGE_BRANCH,
    MERGE_RACES_LOST,
    MERGED_BY_SPARK,
)
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
from calve.sink_core.iceberg.commit.append import Attempt
from calve.sink_core.iceberg.commit.staging import STAGING_MS, Staging, build_merged, dropping, merged_in, staging_of
from calve.sink_core.iceberg.commit.swap import swap
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import ToMerge
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.timing import back_off

MERGES = 3
"""Lost races of a merge before the table stays behind: each costs as much as the merge."""

LONGEST_S = STAGING_MS / 1000
"""What has taken longer is not committed. Orphan removal leaves alone what is less than three days old."""

LOOKS = 10
"""How often the last call of a merge is built: other branches of the table take sequence numbers as well."""

Events = Sequence[Logged[DataWritten]]

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
        """What the next commit to the table takes in. Raises TableUnusable if it merges, and can't do that here."""
        part = first_part(events, merged=name in self.tables)
        if part.merges and self.changes is None:
            raise TableUnusable(
                f"{name}: its changes are merged by Spark, and there is none here",
                hint="calve commit FILE",
                code=MERGED_BY_SPARK,
            )
        return part


NO_MERGING = Merging()


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge into `table` as it was loaded when it was decided what it lacks."""

    catalog: Catalog
    table: Table
    tag: str
    changes: MergeChanges
    rules: Rules = ALL

    def commit(self, events: Events, summary: Mapping[str, str]) -> Attempt | None:
        """The attempt that landed, under which the table says `summary`; None if others were faster."""
        with unreachable_as_ours(f"making a branch of {self._name}"):
            staging = staging_of(self.table, self.tag)
        began_s = time.time()
        try:
            if not self._made(staging):
                return None
            reach("merge.after-branch")
            self.changes(self.table, staging.name, events)
            reach("merge.after-changes")
            # Files that Spark wrote before it committed them may be taken for orphans when they are old.
            in_time = time.time() - began_s < LONGEST_S
            landed = self._forwarded(staging, summary) if in_time else None
        except CommitConflict:
            landed = None
        except Exception:
            self._drop(staging)
            raise
        if landed is None:
            self._drop(staging)
        return landed

    def _made(self, staging: Staging) -> bool:
        try:
            self.catalog.commit_table(self.table, staging.call.requirements, staging.call.updates)
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises, only the table knows the outcome
            refs = self._load().metadata.refs
            if refs == self.table.metadata.refs:
                raise Unreachable(
                    f"{self._name}: making a branch for a merge failed: {describe(error)}",
                    hint="the table stays as it is, and the next try goes on; does the catalog allow branches?",
                    code=MERGE_BRANCH,
                ) from None
            return staging.name in refs
        return True

    def _forwarded(self, staging: Staging, summary: Mapping[str, str]) -> Attempt | None:
        """`main` moved to what was merged, unless it or the branch has moved."""
        lost_to: Exception | None = None
        for look in range(LOOKS):
            if look:
                back_off(look - 1, first_s=0.1, most_s=1.0)
            now = self._load()
            if not self.rules.merge_asserts_the_parent:
                staging = replace(staging, base=now.metadata)
            merged = merged_in(now.metadata, staging, self.tag)
            if merged is None:
                return None
            try:
                with unreachable_as_ours(f"moving {self._name} to its merged changes"):
                    attempt = build_merged(now, staging, merged, summary, tag=self.tag, rules=self.rules)
            except TableUnusable as error:
                # What was merged has been expired since it was loaded: the next look tells.
                lost_to = error
                continue
            reach("merge.after-list")
            lost_to = swap(self.catalog, now, attempt)
            if lost_to is None:
                return attempt
        assert lost_to is not None
        raise Unreachable(
            f"{self._name}: {LOOKS} attempts to commit a merge failed in a row, the last with {describe(lost_to)}",
            hint="the table stays as it is, and the next try goes on; see the catalog's log",
            code=COMMITS_FAIL,
        )

    def _drop(self, staging: Staging) -> None:
        """Where that fails, the branch goes when it is old."""
        with suppress(Exception):
            call = dropping(self._load().metadata, staging.name)
            if call is not None:
                self.catalog.commit_table(self.table, call.requirements, call.updates)

    def _load(self) -> Table:
        try:
            with unreachable_as_ours(f"loading table {self._name}"):
                return self.catalog.load_table(self.table.name())
        except NoSuchTableError as error:
            # It has been dropped: the next look at it says what that means.
            raise CommitConflict(f"{self._name} was dropped during a merge", code=DROPPED_MEANWHILE) from error

    @property
    def _name(self) -> str:
        return ".".join(self.table.name())


def lost_merges(name: str) -> CommitConflict:
    """The error after `MERGES` lost races."""
    return CommitConflict(
        f"{name}: others committed to the table during each of {MERGES} merges in a row",
        hint="the table stays as it is, and the next try goes on. Let other writers and compaction leave it alone for "
        "as long as a merge takes, or set write_mode: equality_deletes, which needs no such pauses",
        code=MERGE_RACES_LOST,
    )

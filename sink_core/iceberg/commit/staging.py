"""The staging branch of one merge, and the call that moves `main` to what was merged there. Nothing here has an effect
but writing manifest lists.

The life of a branch: it is made at the head that the commit was decided on; Spark adds one snapshot to it; one
`commit_table` call asserts that both branches are where they must be, puts a snapshot of ours on top, moves `main` and
the tag to that, and drops the branch. One that is left behind is nobody's, whatever it holds, and goes when it is old.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from calve.sink_core.iceberg.catalog.clock import not_updated_past
from calve.sink_core.iceberg.commit.append import FOREVER_MS, at_ref, new_snapshot, set_ref
from calve.sink_core.iceberg.commit.plan import Attempt
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.history.shares import Step

STAGING_MS = 24 * 3600 * 1000
"""How old a staging branch's head must be before expiry drops the branch. A merge whose branch goes is done again."""

_MARK = "-merge-"


@dataclass(frozen=True, slots=True)
class Call:
    """What one `catalog.commit_table` call is given."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


@dataclass(frozen=True, slots=True)
class Staging:
    """A branch that `call` makes. `base` is the table as the commit was decided on it, `root` the branch's head at
    first: the head of `main`, or for a table without one an empty snapshot that is on this branch only.
    """

    name: str
    root: int
    base: TableMetadata
    call: Call


def staging_of(table: Table, tag: str) -> Staging:
    """A branch of its own for one merge, made from `main` explicitly."""
    name, metadata = f"{tag}{_MARK}{uuid.uuid4().hex}", table.metadata
    head, new = metadata.refs.get(MAIN_BRANCH), ()
    requirements = (*_of(metadata), at_ref(MAIN_BRANCH, head.snapshot_id if head else None))
    if head is not None:
        root = head.snapshot_id
    else:
        empty = new_snapshot(table, None, Step((), {}), metadata.next_sequence_number())
        root, new = empty.snapshot_id, (AddSnapshotUpdate(snapshot=empty),)
        requirements = (*requirements, not_updated_past(empty.timestamp_ms))
    made = set_ref(name, SnapshotRefType.BRANCH, root, **{"max-ref-age-ms": STAGING_MS})
    call = Call(requirements, (*new, made))
    return Staging(name, root, metadata, call)


def merged_in(now: TableMetadata, staging: Staging, tag: str) -> Snapshot | None:
    """The head of the branch if it is the root, or one snapshot on top of it by the schema that its changes were read
    by, and `main` and tag are where they were; else the merge is worth nothing any more.
    """
    if any(now.refs.get(ref) != staging.base.refs.get(ref) for ref in (MAIN_BRANCH, tag)):
        return None
    head = now.refs.get(staging.name)
    found = now.snapshot_by_id(head.snapshot_id) if head else None
    if found is None or found.snapshot_id == staging.root:
        return found
    alike = found.schema_id == staging.base.current_schema_id
    return found if alike and found.parent_snapshot_id == staging.root else None


def build_merged(
    now: Table, staging: Staging, merged: Snapshot, summary: Mapping[str, str], *, tag: str, rules: Rules = ALL
) -> Attempt:
    """The call that makes `merged`, with a snapshot on top that says what it holds, the head of `main`.

    `main` and tag are asserted as they were when it was decided what to merge, so that nothing of what came in between
    is lost, and the branch as it is now: were it gone, `merged` might be expired, and its files with it.
    """
    base, metadata = staging.base, now.metadata
    said = new_snapshot(now, merged, Step((), summary, replaces=True), metadata.next_sequence_number())
    requirements = (
        *_of(base),
        *(at_ref(ref, found.snapshot_id if (found := base.refs.get(ref)) else None) for ref in (MAIN_BRANCH, tag)),
        *((at_ref(staging.name, merged.snapshot_id),) if rules.merge_asserts_the_staging_head else ()),
        not_updated_past(said.timestamp_ms),
    )
    updates = (
        AddSnapshotUpdate(snapshot=said),
        set_ref(MAIN_BRANCH, SnapshotRefType.BRANCH, said.snapshot_id),
        set_ref(tag, SnapshotRefType.TAG, said.snapshot_id, **{"max-ref-age-ms": FOREVER_MS}),
        _without(staging.name),
    )
    return Attempt(said.snapshot_id, said.summary.additional_properties if said.summary else {}, updates, requirements)


def dropping(metadata: TableMetadata, name: str) -> Call | None:
    """The call that drops a staging branch as it is in `metadata`; None if it is not there."""
    ref = metadata.refs.get(name)
    if ref is None:
        return None
    return Call((*_of(metadata), at_ref(name, ref.snapshot_id)), (_without(name),))


def left_behind(metadata: TableMetadata, now_ms: int) -> list[str]:
    """The staging branches, of whichever pipeline, that no merge is at work on any more."""
    branches = (
        (name, metadata.snapshot_by_id(ref.snapshot_id))
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH and name.startswith("calve-") and _MARK in name
    )
    return [name for name, head in branches if head and head.timestamp_ms <= now_ms - STAGING_MS]


def _without(ref: str) -> RemoveSnapshotRefUpdate:
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": ref})


def _of(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    return (AssertTableUUID(uuid=metadata.table_uuid),)

"""Which snapshots go: old ones, but never one between a tag of Calve's and the head.

Those are what tells a table that went on from one that was rolled back (`table-rolled-back`). Staging branches that no
merge is at work on are dropped first, so that their snapshots may go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.staging import dropping, left_behind

TAG_PREFIX = "calve-"

_ById = Mapping[int, Snapshot]


@dataclass(frozen=True, slots=True)
class Expiry:
    """What to ask of `expire_snapshots` and what it will do.

    `cutoff_ms` is earlier than asked for where snapshots above a tag are older. `going` are the snapshots it removes;
    `cut` the tags above which it would do so all the same, because a branch has a retention of its own.
    """

    cutoff_ms: int
    going: frozenset[int]
    cut: tuple[str, ...]


def plan_expiry(
    table: Table, *, now_ms: int, older_than_ms: int, retain_last: int, keep_at_most: int | None = None
) -> Expiry:
    """Expire what is older than `older_than_ms` (an age, in ms), and of `main` what is beyond the `keep_at_most` latest
    snapshots, keeping `retain_last` snapshots of each branch.

    By the rules of https://iceberg.apache.org/spec/#snapshot-retention-policy.
    """
    metadata = table.metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    above = {tag: _above(metadata, by_id, at) for tag, at in calve_tags(metadata).items()}
    wanted_ms = max(now_ms - older_than_ms, _oldest_of(metadata, by_id, keep_at_most))
    cutoff_ms = min([wanted_ms, *(s.timestamp_ms for held in above.values() for s in held)])
    kept = _kept(metadata, by_id, now_ms=now_ms, cutoff_ms=cutoff_ms, retain_last=retain_last)
    going = frozenset(by_id.keys() - kept)
    cut = tuple(tag for tag, held in above.items() if not going.isdisjoint(s.snapshot_id for s in held))
    return Expiry(cutoff_ms, going, cut)


def drop_left_behind(catalog: Catalog, table: Table, now_ms: int) -> bool:
    """Drop the staging branches of merges that have come to nothing; whether there were any.

    Raises what a catalog that can't be asked raises.
    """
    calls = [dropping(table.metadata, branch) for branch in left_behind(table.metadata, now_ms)]
    with unreachable_as_ours(f"dropping branches of {'.'.join(table.name())}"):
        for call in filter(None, calls):
            # Where it was dropped or moved meanwhile, the next expiry looks again.
            with suppress(CommitFailedException, CommitStateUnknownException):
                catalog.commit_table(table, call.requirements, call.updates)
    return bool(calls)


def calve_tags(metadata: TableMetadata) -> dict[str, int]:
    """Tags of pipelines, with their snapshots."""
    return {
        name: ref.snapshot_id
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type is SnapshotRefType.TAG and name.startswith(TAG_PREFIX)
    }


def _kept(metadata: TableMetadata, by_id: _ById, *, now_ms: int, cutoff_ms: int, retain_last: int) -> set[int]:
    kept: set[int] = set()
    on_branches: set[int] = set()
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            kept.add(ref.snapshot_id)
            continue
        ancestors = list(_ancestors(by_id, ref.snapshot_id))
        on_branches |= {snapshot.snapshot_id for snapshot in ancestors}
        least = retain_last if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        from_ms = cutoff_ms if ref.max_snapshot_age_ms is None else now_ms - ref.max_snapshot_age_ms
        for number, snapshot in enumerate(ancestors):
            if number >= least and snapshot.timestamp_ms < from_ms:
                break
            kept.add(snapshot.snapshot_id)
    return kept | {
        s.snapshot_id for s in by_id.values() if s.snapshot_id not in on_branches and s.timestamp_ms >= cutoff_ms
    }


def _oldest_of(metadata: TableMetadata, by_id: _ById, latest: int | None) -> int:
    """When the oldest of the `latest` snapshots of `main` was made, in ms; 0 where there are not more of them."""
    head = metadata.refs.get(MAIN_BRANCH)
    ancestors = [*_ancestors(by_id, head.snapshot_id if head else None)]
    return 0 if latest is None or latest >= len(ancestors) else ancestors[latest - 1].timestamp_ms


def _above(metadata: TableMetadata, by_id: _ById, tagged: int) -> list[Snapshot]:
    """The head's ancestors down to the tagged snapshot, without it; none if that isn't among them."""
    head = metadata.refs.get(MAIN_BRANCH)
    above: list[Snapshot] = []
    for snapshot in _ancestors(by_id, head.snapshot_id if head else None):
        if snapshot.snapshot_id == tagged:
            return above
        above.append(snapshot)
    return []


def _ancestors(by_id: _ById, snapshot_id: int | None) -> Iterator[Snapshot]:
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id

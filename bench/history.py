"""A table with a long history, made in one call."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate


def lengthen(catalog: Catalog, name: str, tag: str, size: int) -> None:
    """Give a table with one snapshot `size` like it, each the parent of the next; the tag is on the last."""
    table = catalog.load_table(name)
    [last] = table.metadata.snapshots
    first = last.snapshot_id
    chain = [_like(last, first + number, table.metadata.last_sequence_number + number) for number in range(size)]
    refs = [{"ref-name": MAIN_BRANCH, "type": "branch"}, {"ref-name": tag, "type": "tag"}]
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=each) for each in chain[1:]]
    updates += [SetSnapshotRefUpdate.model_validate({**ref, "snapshot-id": chain[-1].snapshot_id}) for ref in refs]
    catalog.commit_table(table, tuple[TableRequirement, ...](), tuple(updates))


def _like(snapshot: Snapshot, number: int, sequence_number: int) -> Snapshot:
    parent = number - 1 if number > snapshot.snapshot_id else None
    changes = {"snapshot_id": number, "parent_snapshot_id": parent, "sequence_number": sequence_number}
    return snapshot.model_copy(update=changes)

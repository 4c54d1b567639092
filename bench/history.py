"""A table with a long history, made in one call."""

from __future__ import annotations

import uuid

from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from calve.sink_core.tables.history.record import COMMIT_ID


def lengthen(catalog: Catalog, name: str, tag: str, size: int) -> None:
    """Give a table with one snapshot `size` of them, each the parent of the next; the tag is on the last."""
    table = catalog.load_table(name)
    [last] = table.metadata.snapshots
    first = last.snapshot_id
    chain = [_like(last, first + number, table.metadata.last_sequence_number + number) for number in range(size)]
    refs = [{"ref-name": MAIN_BRANCH, "type": "branch"}, {"ref-name": tag, "type": "tag"}]
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=each) for each in chain[1:]]
    updates += [SetSnapshotRefUpdate.model_validate({**ref, "snapshot-id": chain[-1].snapshot_id}) for ref in refs]
    catalog.commit_table(table, tuple[TableRequirement, ...](), tuple(updates))


def _like(snapshot: Snapshot, number: int, sequence_number: int) -> Snapshot:
    if number == snapshot.snapshot_id:
        return snapshot
    changes = {"snapshot_id": number, "parent_snapshot_id": number - 1, "sequence_number": sequence_number}
    return snapshot.model_copy(update={**changes, "summary": _of_no_batch(snapshot)})


def _of_no_batch(snapshot: Snapshot) -> Summary:
    """As large as one with a batch's id, which may be in one snapshot only, and different from all others."""
    assert snapshot.summary is not None
    said = dict(snapshot.summary.additional_properties)
    for key, value in said.items():
        if key.endswith(".batches"):
            said[key] = ""
        elif key.endswith(".counts"):
            said[key] = "{}"
        elif key == COMMIT_ID:
            said[key] = f"{uuid.uuid4()} in place of {value}"
    return Summary(operation=snapshot.summary.operation, **said)

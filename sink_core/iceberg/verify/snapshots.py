"""The number of rows that a table's head says against what its snapshots of ours brought. Pure."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from calve.sink_core.tables.history.contents import contents
from calve.sink_core.tables.history.view import SnapshotView, TableView
from calve.sink_core.tables.proof import Evidence


def compare_total(
    table: Table, view: TableView, evidence: Evidence, *, whole: bool, changes_rows: bool = False
) -> None:
    """Where every ancestor is ours or a rewrite, the head's `total-records` is the sum of what ours brought."""
    held, metadata = contents(view), table.metadata
    if changes_rows:
        evidence.skipped(view.table, "the total number of rows: its records change rows that are there")
        return
    if not whole:
        evidence.skipped(view.table, "the total number of rows: snapshots have been expired")
        return
    foreign = [s for s in view.ancestors() if s is not None and view.own_or_copied(s) is None]
    others = [s for s in foreign if not _rewrites(metadata, s)]
    if others:
        ids = ", ".join(str(s.snapshot_id) for s in others[:3])
        why = f"the total number of rows: {len(others)} snapshots of other writers ({ids})"
        evidence.skipped(view.table, why)
        return
    total, rows = _total_records(metadata), sum(held.rows.values()) - held.replaced
    if total is not None and total != rows:
        message = f"the head says {total} rows in total, the batches in its snapshots have {rows}"
        evidence.violation("table-total", view.table, message)


def _rewrites(metadata: TableMetadata, snapshot: SnapshotView) -> bool:
    found = metadata.snapshot_by_id(snapshot.snapshot_id)
    return found is not None and found.summary is not None and found.summary.operation is Operation.REPLACE


def _total_records(metadata: TableMetadata) -> int | None:
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    total = head.summary.additional_properties.get("total-records") if head and head.summary else None
    return int(total) if total is not None else None

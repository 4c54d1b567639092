"""A table of the catalog as the commit protocol sees it. Pure: loaded metadata in, a view out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from calve.sink_core.tables.history.record import SummaryKeys, from_summary, others_in
from calve.sink_core.tables.history.view import SnapshotView, TableView

REMEMBERED = 64
"""Tables of whose snapshots is kept what they said; the one looked at longest ago makes room."""

_CHERRY_PICKED_FROM = "source-snapshot-id"


def view_of(
    metadata: TableMetadata, *, table: str, tag: str, keys: SummaryKeys, branch: str = MAIN_BRANCH
) -> TableView:
    head, ours = metadata.refs.get(branch), metadata.refs.get(tag)
    snapshots = _snapshots(metadata, keys)
    return TableView(
        table=table,
        uuid=str(metadata.table_uuid),
        head=head.snapshot_id if head else None,
        tag=ours.snapshot_id if ours else None,
        snapshots=snapshots,
        others={group: cluster for each in snapshots.values() for group, cluster in each.others.items()},
        adopted=frozenset(filter(None, metadata.properties.get(keys.adopted, "").split(","))),
    )


def summary_of_head(metadata: TableMetadata) -> Mapping[str, str]:
    """What the head's snapshot says of itself; nothing if there is none."""
    head = metadata.current_snapshot()
    return head.summary.additional_properties if head and head.summary else {}


def totals_in(summary: Mapping[str, str]) -> tuple[int | None, int, int]:
    """Rows, data files and their bytes that a table has by a snapshot's summary; rows are None where deletes are
    counted beside them.
    """
    rows, files, size = (int(summary.get(f"total-{each}", "0")) for each in ("records", "data-files", "files-size"))
    deletes = any(int(summary.get(f"total-{each}-deletes", "0")) for each in ("equality", "position"))
    return None if deletes else rows, files, size


def _snapshots(metadata: TableMetadata, keys: SummaryKeys) -> dict[int, SnapshotView]:
    """By id. A catalog that remembers tables gives the objects it gave before; of thousands one is new."""
    read = _read_before(metadata.table_uuid, keys)
    now: dict[int, tuple[Snapshot, SnapshotView]] = {}
    for snapshot in metadata.snapshots:
        known = read.get(snapshot.snapshot_id)
        if known is None or known[0] is not snapshot:
            known = (snapshot, _snapshot_view(snapshot, keys))
        now[snapshot.snapshot_id] = known
    read.clear()
    read.update(now)
    return {snapshot_id: view for snapshot_id, (_, view) in now.items()}


@lru_cache(REMEMBERED)
def _read_before(_table: UUID, _keys: SummaryKeys) -> dict[int, tuple[Snapshot, SnapshotView]]:
    """What the snapshots of a table said when it was last looked at, by id."""
    return {}


def _snapshot_view(snapshot: Snapshot, keys: SummaryKeys) -> SnapshotView:
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    source = summary.get(_CHERRY_PICKED_FROM)
    return SnapshotView(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        source_id=int(source) if source else None,
        own=from_summary(keys, summary),
        sequence_number=snapshot.sequence_number or 0,
        others=others_in(keys, summary),
    )

"""Tables as the commit protocol sees them, made of a few snapshots."""

from __future__ import annotations

from typing import Any

from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SnapshotRecord, SummaryKeys
from calve.sink_core.tables.history.view import SnapshotView, TableView
from tests.unit.tables.log.build import TABLE, UUID

KEYS = SummaryKeys("flights", "calve.prod.flights.control", "calve.prod.flights")
NOW = Identity(control_topic_id="topic-1", cluster_id="cluster-1")


def own(stored_offset: int, last_event_id: str = "", **changes: Any) -> SnapshotRecord:
    values: dict[str, Any] = {
        "stored_offset": stored_offset,
        "commit_id": "c1",
        "valid_through_ms": None,
        "batches": ("b1",),
        "counts": {"b1": 10},
        "last_event_id": last_event_id,
        "control_topic_id": NOW.control_topic_id,
        "cluster_id": NOW.cluster_id,
    }
    return SnapshotRecord(**(values | changes))


def snapshot(
    snapshot_id: int, parent_id: int | None = None, ours: SnapshotRecord | None = None, source_id: int | None = None
) -> SnapshotView:
    """A snapshot; those with greater ids are later."""
    return SnapshotView(snapshot_id, parent_id, source_id, ours, sequence_number=snapshot_id)


def view(*snapshots: SnapshotView, head: int | None, tag: int | None, uuid: str = UUID) -> TableView:
    return TableView(TABLE, uuid, head, tag, {s.snapshot_id: s for s in snapshots})

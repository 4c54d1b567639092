"""A table as the commit protocol sees it: snapshots, head, tag and what ours among them say. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from calve.sink_core.iceberg.commit.properties import SnapshotRecord, SummaryKeys, from_summary, others_in

REMEMBERED = 64
"""Tables of whose snapshots is kept what they said; the one looked at longest ago makes room."""

_CHERRY_PICKED_FROM = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """One snapshot. `source_id` names the snapshot it is a cherry-picked copy of; `own` is set if we wrote it, `others`
    are as in `TableView`.
    """

    snapshot_id: int
    parent_id: int | None
    source_id: int | None
    own: SnapshotRecord | None
    sequence_number: int = 0
    others: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class TableView:
    """One loaded version of a table's metadata.

    `others` are the groups of other pipelines that write to it, each with its cluster's id; `adopted` are those that
    somebody has said may feed it with the same records.
    """

    table: str
    uuid: str
    head: int | None
    tag: int | None
    snapshots: Mapping[int, SnapshotView]
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    adopted: frozenset[str] = frozenset()

    def ancestors(self) -> Iterator[SnapshotView | None]:
        """From the head to the root; a final None where the parent of the last one has been expired."""
        return self.ancestors_of(self.head)

    def ancestors_of(self, at: int | None) -> Iterator[SnapshotView | None]:
        """As `ancestors`, from any snapshot."""
        while at is not None:
            snapshot = self.snapshots.get(at)
            yield snapshot
            if snapshot is None:
                return
            at = snapshot.parent_id

    @property
    def whole(self) -> bool:
        """Whether the head's ancestry reaches back to the table's first snapshot.

        Some expire snapshots and leave the parent's id in place, some (pyiceberg) take it out; the sequence number
        tells.
        """
        *_, oldest = [None, *self.ancestors()]
        return self.head is None if oldest is None else oldest.sequence_number <= 1

    @property
    def tagged(self) -> SnapshotView | None:
        return self.snapshots.get(self.tag) if self.tag is not None else None

    @property
    def stored_offset(self) -> int:
        """The control offset (exclusive) up to which the table says it has all; 0 if it never did.

        The higher of the tag and the nearest ancestor of ours: a tag that somebody moved to an older snapshot of ours
        must not bring back what the head has.
        """
        return self.latest.stored_offset if self.latest else 0

    @property
    def latest(self) -> SnapshotRecord | None:
        """What the snapshot of ours says that has most, of tag and head's ancestors."""
        return max(self.counted((self.tagged, self.nearest)), key=lambda own: own.stored_offset, default=None)

    @property
    def newest(self) -> SnapshotView | None:
        """The snapshot of ours that was made last, wherever the head is."""
        ours = (snapshot for snapshot in self.snapshots.values() if snapshot.own is not None)
        return max(ours, key=lambda snapshot: snapshot.sequence_number, default=None)

    def counted(self, snapshots: Iterable[SnapshotView | None]) -> list[SnapshotRecord]:
        """What those of `snapshots` say that are of the control topic which the table was last committed to from.

        Offsets of one that was rebuilt since are another count; a head rolled back to before that has them.
        """
        last = self.tagged if self.tagged and self.tagged.own else self.newest
        topic_id = last.own.control_topic_id if last and last.own else None
        owns = (snapshot.own for snapshot in snapshots if snapshot is not None)
        return [own for own in owns if own is not None and own.control_topic_id == topic_id]

    def own_or_copied(self, snapshot: SnapshotView) -> SnapshotRecord | None:
        """What a snapshot of ours, or the one that it is a cherry-picked copy of, says."""
        source = self.snapshots.get(snapshot.source_id) if snapshot.source_id is not None else None
        return snapshot.own or (source.own if source else None)

    @property
    def held(self) -> set[str]:
        """The batches under the head; a cherry-picked copy holds those of the snapshot it was made from."""
        owns = (self.own_or_copied(snapshot) for snapshot in self.ancestors() if snapshot is not None)
        return {batch_id for own in owns if own is not None for batch_id in own.batches}

    @property
    def nearest(self) -> SnapshotView | None:
        """The nearest ancestor of the head that is ours."""
        return next((s for s in self.ancestors() if s is not None and s.own is not None), None)


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

"""A table as the commit protocol sees it: snapshots, head, tag and what ours among them say. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from calve.sink_core.tables.history.record import SnapshotRecord


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

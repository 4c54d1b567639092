"""State against world, per table (docs/design.md, Findings). Pure: a loaded table and the folded log in, a finding out.

Called on every attempt of a commit, on the very metadata the attempt is built on: a roll back that arrives between
check and commit changes the head, and the next attempt sees it here.
"""

from __future__ import annotations

from dataclasses import dataclass

from calve.sink_core.finding import Finding
from calve.sink_core.findings import (
    CONTROL_TOPIC_RECREATED,
    CONTROL_TOPIC_TRUNCATED,
    OTHER_CLUSTER,
    TABLE_DROPPED,
    TABLE_RECREATED,
    TABLE_RESTORED,
    TABLE_ROLLED_BACK,
    TAG_REMOVED,
)
from calve.sink_core.tables.history.record import SnapshotRecord
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class AncestryCut:
    """Snapshots above the tag were expired by somebody; only the tagged snapshot's files in the head can tell."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class Identity:
    """The control topic and the cluster as they are now."""

    control_topic_id: str
    cluster_id: str


def compare(view: TableView, state: CommitState, now: Identity) -> Finding | AncestryCut | None:
    """None if the table may be committed to."""
    return (
        (recreated(view, state) if state.rules.recreated_table_is_a_finding else None)
        or _other_identity(view, now)
        or (_tag_gone(view, state) if state.rules.missing_tag_is_a_finding else None)
        or _events_missing(view, state)
        or (_less_stored_than_reported(view, state) if state.rules.missing_tag_is_a_finding else None)
        or (_not_an_ancestor(view) if state.rules.tag_is_an_ancestor else None)
    )


def recreated(view: TableView, state: CommitState) -> Finding | None:
    """Events or reports speak of another incarnation of the table."""
    other = state.for_other_uuid(view.table, view.uuid, view.stored_offset)
    if other is not None:
        stored = f"uuid {other.event.table_uuid} (batch {other.event.batch_id}, control offset {other.offset})"
        return TABLE_RECREATED.of(view.table, stored=stored, found=f"uuid {view.uuid}")
    reported = {uuid: offset for uuid, offset in state.reported.get(view.table, {}).items() if uuid != view.uuid}
    if reported and view.tag is None and view.uuid not in state.reported.get(view.table, {}):
        uuid, offset = max(reported.items(), key=lambda item: item[1])
        stored = f"uuid {uuid} up to control offset {offset}"
        return TABLE_RECREATED.of(view.table, stored=stored, found=f"uuid {view.uuid}")
    return None


def dropped(table: str, state: CommitState) -> Finding | None:
    """For a table that is not in the catalog: only a finding if the log speaks of it."""
    if table not in state.tables:
        return None
    uuids = sorted({e.event.table_uuid for e in state.written.get(table, [])} | set(state.reported.get(table, {})))
    return TABLE_DROPPED.of(table, stored=f"uuid {', '.join(uuids)}", found="no such table")


def _tag_gone(view: TableView, state: CommitState) -> Finding | None:
    if view.tagged is not None and view.tagged.own is not None:
        return None
    if view.newest is not None:
        ours = f"snapshot {view.newest.snapshot_id} of ours"
        return TAG_REMOVED.of(view.table, stored=ours, found="no tag on it")
    reported = state.reported_offset(view.table, view.uuid)
    if reported > 0:
        return TABLE_RESTORED.of(view.table, stored=f"control offset {reported}", found="no snapshot of ours")
    return None


def _other_identity(view: TableView, now: Identity) -> Finding | None:
    """Comes before a tag that is gone: what answers that would mix the events of two control topics."""
    last = view.tagged or view.newest
    own = last.own if last else None
    if own is None:
        return None
    if own.cluster_id != now.cluster_id:
        return OTHER_CLUSTER.of(view.table, stored=own.cluster_id, found=now.cluster_id)
    if own.control_topic_id != now.control_topic_id:
        stored = f"control topic id {own.control_topic_id}"
        return CONTROL_TOPIC_RECREATED.of(view.table, stored=stored, found=now.control_topic_id)
    return None


def _events_missing(view: TableView, state: CommitState) -> Finding | None:
    own = view.tagged.own if view.tagged else None
    if own is None:
        return None
    end = state.next_offset
    if own.stored_offset > end:
        return CONTROL_TOPIC_TRUNCATED.of(view.table, stored=f"control offset {own.stored_offset}", found=f"end {end}")
    if own.last_event_id and not _is_known(own, view.table, state) and not _trimmed(own, view.table, state):
        stored = f"event {own.last_event_id} below control offset {own.stored_offset}"
        return CONTROL_TOPIC_TRUNCATED.of(view.table, stored=stored, found="no such event")
    return None


def _is_known(own: SnapshotRecord, table: str, state: CommitState) -> bool:
    """Whether the log has the last event committed to a table. It is among the last ones, if it is there."""
    return any(logged.event.event_id == own.last_event_id for logged in reversed(state.written.get(table, ())))


def _trimmed(own: SnapshotRecord, table: str, state: CommitState) -> bool:
    """Whether the last event committed to a table may have been deleted by a trim.

    It has, if the table's offset is not above the log start. Otherwise the log lacks it only if the table had no later
    event below the log start: it is then the one that a checkpoint names.
    """
    return own.stored_offset <= state.log_start or own.last_event_id in state.last_events.get(table, set())


def _less_stored_than_reported(view: TableView, state: CommitState) -> Finding | None:
    reported = state.reported_offset(view.table, view.uuid)
    if reported <= view.stored_offset:
        return None
    found = f"control offset {view.stored_offset} (tag)"
    return TABLE_RESTORED.of(view.table, stored=f"control offset {reported} (COMMIT_TO_TABLE)", found=found)


def _not_an_ancestor(view: TableView) -> Finding | AncestryCut | None:
    """A cherry-picked copy stands for the snapshot it copies, but not for the ones of ours below that."""
    if view.tag is None:
        return None
    held: set[int | None] = set()
    root = None
    for snapshot in view.ancestors():
        if snapshot is None:
            return AncestryCut(_rolled_back(view, "its ancestry ends before the tag: snapshots were expired"))
        if snapshot.snapshot_id == view.tag:
            return None
        root = snapshot
        held |= {snapshot.snapshot_id, snapshot.source_id}
    if view.tag not in held and root and view.tagged and root.sequence_number > view.tagged.sequence_number:
        # pyiceberg's expiry makes the oldest snapshot it leaves a root; only its sequence number tells that it had one.
        return AncestryCut(_rolled_back(view, "its ancestry begins after the tag: snapshots were expired"))
    if view.tag not in held:
        return _rolled_back(view, "the tagged snapshot is not among its ancestors")
    lost = [s.snapshot_id for s in view.ancestors_of(view.tag) if s and s.own and s.snapshot_id not in held]
    return _rolled_back(view, f"snapshot {lost[0]} of ours is not among its ancestors") if lost else None


def _rolled_back(view: TableView, why: str) -> Finding:
    stored = f"snapshot {view.tag} (tag, control offset {view.stored_offset})"
    return TABLE_ROLLED_BACK.of(view.table, stored=stored, found=f"head {view.head}, {why}")

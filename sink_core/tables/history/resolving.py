"""The range job that resolves a finding by being committed. Pure: a loaded table and the folded log in.

Its event names the table's UUID, the tagged snapshot and the base, which is what the head still has of ours. Whatever
moves the head or the tag in between (somebody else's answer, a second roll back) changes one of them: the event is then
dropped, as the batches that it has read again may be there once more, or others may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from calve.sink_core.control.events import Logged
from calve.sink_core.findings import FINDINGS, TABLE_DROPPED
from calve.sink_core.offsets import after
from calve.sink_core.tables.history.shares import Share
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.range_parts import Resolves
from calve.sink_core.tables.log.state import CommitState

REFILLED = frozenset(kind.name for kind in FINDINGS.values() if kind.has("refill") and kind is not TABLE_DROPPED)
"""The findings that a range job can resolve; a dropped table becomes a recreated one first."""


@dataclass(frozen=True, slots=True)
class Base:
    """What the head has of ours.

    `snapshot_id` is the nearest ancestor that is ours or a cherry-picked copy of one of ours, None if there is none.
    `stored_offset` is that of the nearest that is ours: the head has every event below it that anybody has. 0 if it is
    of a control topic that was rebuilt since.
    """

    snapshot_id: int | None
    stored_offset: int


def base_of(view: TableView, state: CommitState) -> Base | None:
    """None if it can't be known: the ancestry ends in expired snapshots before one of ours is met, though the table had
    some.
    """
    nearest, oldest = None, None
    for snapshot in view.ancestors():
        if snapshot is None:
            return None if _had_ours(view, state) else Base(nearest, 0)
        oldest = snapshot
        if nearest is None and view.own_or_copied(snapshot) is not None:
            nearest = snapshot.snapshot_id
        if snapshot.own is not None:
            return Base(nearest, max((own.stored_offset for own in view.counted([snapshot])), default=0))
    # pyiceberg's expiry takes the parent out of the oldest snapshot it leaves; the first one ever has number 1.
    cut = oldest is not None and oldest.sequence_number > 1
    return None if cut and _had_ours(view, state) else Base(nearest, 0)


def _had_ours(view: TableView, state: CommitState) -> bool:
    return state.reported_offset(view.table, view.uuid) > 0 or any(snapshot.own for snapshot in view.snapshots.values())


def resolves(view: TableView, state: CommitState, finding: str, covers_offset: int) -> Resolves | None:
    """What a range job for the table as it is now has to name; None where the base can't be known."""
    base = base_of(view, state)
    if base is None:
        return None
    return Resolves(
        finding=finding,
        tagged_snapshot_id=view.tag,
        base_snapshot_id=base.snapshot_id,
        covers_offset=covers_offset,
    )


def resolution(view: TableView, state: CommitState, finding: str) -> Share | None:
    """The newest range job that names the table exactly as it is, with every pending event up to its own, in log order.

    None if there is none, or if another incarnation of the table has events above what it covers, or is named
    by one between that and itself. Nor if the table had taken it in once: what was pending then may be trimmed by now.
    """
    if finding not in REFILLED:
        return None
    named = resolves(view, state, finding, 0)
    published = _published(view, state)
    mine = [e for e in published if e.event.table_uuid == view.uuid and e.event.resolves is not None]
    if state.rules.resolving_job_names_tag_and_base:
        mine = [e for e in mine if _names(e.event, named)]
    if named is None or not mine:
        return None
    job = mine[-1]
    covers = job.event.resolves.covers_offset if job.event.resolves else 0
    between = [logged for logged in published if covers <= logged.offset < job.offset]
    if any(logged.event.table_uuid != view.uuid for logged in between):
        return None
    # Their events may have been trimmed.
    if any(offset > covers for uuid, offset in state.reported.get(view.table, {}).items() if uuid != view.uuid):
        return None
    if covers < state.log_start and _had(view, state) > covers:
        return None
    # One that replaces rows was written for the table as it was before the finding.
    pending = [logged for logged in between if logged.event.resolves is None and logged.event.replaces is None]
    return Share([*pending, job], after(job.offset), job.event.event_id)


def _had(view: TableView, state: CommitState) -> int:
    """The control offset (exclusive) up to which the table ever had what there was."""
    own = (own.stored_offset for own in view.counted(view.snapshots.values()))
    return max(state.reported_offset(view.table, view.uuid), *own, 0)


def _published(view: TableView, state: CommitState) -> list[Logged[DataWritten]]:
    return [
        logged
        for logged in state.written.get(view.table, [])
        if logged.offset < state.limit and logged.event.batch_id in state.batches
    ]


def _names(event: DataWritten, named: Resolves | None) -> bool:
    return (
        named is not None
        and event.resolves is not None
        and (event.resolves.tagged_snapshot_id, event.resolves.base_snapshot_id)
        == (named.tagged_snapshot_id, named.base_snapshot_id)
    )

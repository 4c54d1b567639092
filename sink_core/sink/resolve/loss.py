"""What a table has lost, by its snapshots and the control log. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from calve.sink_core.control.events import Logged
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState

Events = tuple[Logged[DataWritten], ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """`stored` is the highest control offset (exclusive) that is known to have been committed, `since` the one of which
    the table still has everything. `events` are those between that it lacks and that are still in the log, `kept` those
    below `stored` that it lacks and that nothing speaks against. `unknown` says why `events` may not be all.
    """

    since: int
    stored: int
    events: Events
    kept: Events = ()
    unknown: str = ""

    def given_up_with(self, view: TableView) -> tuple[tuple[int, int], ...]:
        """The ranges of control offsets in which the table gave up batches, this loss included."""
        before = view.latest.given_up if view.latest else ()
        return before if self.since >= self.stored else (*before, (self.since, self.stored))


def lost_by_roll_back(view: TableView, state: CommitState) -> Loss:
    """For a table with its UUID unchanged: what lies between the nearest ancestor of ours and the highest offset that
    its snapshots or its reports tell of.
    """
    reported = state.reported_offset(view.table, view.uuid)
    stored = max([reported, view.stored_offset, *(own.stored_offset for own in view.counted(view.snapshots.values()))])
    base = view.nearest
    since = max((own.stored_offset for own in view.counted([base])), default=0)
    unknown = ""
    if base is None and not view.whole:
        unknown = "snapshots were expired, and what the table still holds can't be told"
    elif since < state.log_start:
        unknown = f"the control topic was trimmed up to {state.log_start}, the table has what is below {since}"
    kept, given_up = view.held, view.latest.given_up if view.latest else ()
    events = tuple(
        logged
        for logged in state.pending(view.table, view.uuid, since)
        if logged.offset < stored
        and logged.event.batch_id not in kept
        and not any(start <= logged.offset < end for start, end in given_up)
    )
    return Loss(since, stored, events, unknown=unknown)


def lost_by_recreation(view: TableView, state: CommitState) -> Loss:
    """For a table with another UUID: everything up to the last event or report that names the old one."""
    others = [_end(e, state) for e in state.written.get(view.table, []) if e.event.table_uuid != view.uuid]
    reported = [offset for uuid, offset in state.reported.get(view.table, {}).items() if uuid != view.uuid]
    stored = max([view.stored_offset, *others, *reported])
    events = tuple(
        e for e in state.written.get(view.table, []) if e.event.table_uuid != view.uuid and e.offset < stored
    )
    own = state.pending(view.table, view.uuid, view.stored_offset)
    # One that replaces or removes rows is dropped: what it was written for is looked at by commits only.
    kept = tuple(e for e in own if e.offset < stored and e.event.replaces is None and not e.event.removes)
    return Loss(0, stored, events, kept=kept)


def _end(logged: Logged[DataWritten], state: CommitState) -> int:
    """The control offset behind the batch of an event."""
    batch = state.batches.get(logged.event.batch_id)
    return (batch.offset if batch else logged.offset) + 1

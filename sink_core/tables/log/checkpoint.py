"""The fold of a sink's log as one event, so that what it was made from can be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from calve.sink_core.control.checkpoint import checkpoint_of
from calve.sink_core.offsets import offsets_to_dense
from calve.sink_core.tables.log.events import TableCheckpoint
from calve.sink_core.tables.log.state import CommitState

Stored = Mapping[str, Mapping[str, int]]
"""By table and UUID the control offset (exclusive) up to which the table has all events."""


def table_checkpoint_of(
    state: CommitState, *, delete_below: int, stored: Stored, open_findings: Iterable[str] = ()
) -> TableCheckpoint:
    """What stands for every event below `state.next_offset` once those below `delete_below` are gone.

    `stored` is what the tables themselves say: a coordinator may have died before it reported, and a table that is put
    back to an older state later must be seen to lack what can't be committed again. Raises ValueError for a log without
    a binding or a publish.
    """
    core = checkpoint_of(state, delete_below=delete_below)
    return TableCheckpoint(
        **{each.name: getattr(core, each.name) for each in fields(core)},
        through_ms=offsets_to_dense(state.through_ms),
        reported=_reported(state, stored),
        open_findings=tuple(open_findings),
        valid_through_ms=state.valid_through_ms(state.next_offset) or 0,
        begins=offsets_to_dense(state.begins),
        batches=state.published,
        last_events=_last_events(state, delete_below),
        fed=dict(state.fed),
        range_jobs=tuple(state.range_jobs.values()),
        instant_ms=state.instant_ms,
    )


def _reported(state: CommitState, stored: Stored) -> dict[str, dict[str, int]]:
    reported = {table: dict(by_uuid) for table, by_uuid in state.reported.items()}
    for table, by_uuid in stored.items():
        for uuid, offset in by_uuid.items():
            if offset > state.reported_offset(table, uuid):
                reported.setdefault(table, {})[uuid] = offset
    return reported


def _last_events(state: CommitState, delete_below: int) -> dict[str, tuple[str, ...]]:
    """Ids of the last `DATA_WRITTEN` per table and UUID below `delete_below`.

    A table that has more than that names one of them as its last event, or one that is left in the log:
    between the last event below and the table's offset there is none for it. Where the log itself has none of a table
    below, they are those of the checkpoints before.
    """
    last = {table: tuple(sorted(ids)) for table, ids in state.last_events.items()}
    for table, written in state.written.items():
        by_uuid = {logged.event.table_uuid: logged.event.event_id for logged in written if logged.offset < delete_below}
        if by_uuid:
            last[table] = tuple(sorted(by_uuid.values()))
    return last

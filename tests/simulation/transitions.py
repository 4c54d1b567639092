"""The transitions of the fold of a sink's log by name, and a count of those that histories make."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from calve.sink_core.control.events import BatchAbandoned, Event, Paused, PipelineBound, Resolved, Resumed
from calve.sink_core.tables.log.events import (
    CheckpointPart,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    StartCommit,
    TableCheckpoint,
)
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState

TRANSITIONS = (
    "bound",
    "bound by a second first run",
    "batch started",
    "files of a batch",
    "bootstrap complete",
    "batch complete",
    "range complete",
    "table reported further",
    "table reported again",
    "round complete",
    "part of a checkpoint",
    "checkpoint beside its events",
    "checkpoint in place of its events",
    "checkpoint overtaken by a publish",
    "paused",
    "resumed",
    "batch given up",
    "answered",
    "read again from the log start",
)
"""One for each event, and more where it depends on the state what an event does."""


def count(patch: pytest.MonkeyPatch, visit: Callable[[str], None]) -> None:
    """Have `visit` called with the name of each transition."""
    apply, restart = SINK.apply, CommitState.restart

    def counted(state: CommitState, offset: int, event: Event) -> None:
        name = _before(state, event)
        apply(state, offset, event)
        visit(name or _checkpoint(state, offset))

    def counted_restart(state: CommitState, log_start: int) -> None:
        if state.next_offset > 0:
            visit("read again from the log start")
        restart(state, log_start)

    patch.setattr(SINK, "apply", counted)
    patch.setattr(CommitState, "restart", counted_restart)


def _before(state: CommitState, event: Event) -> str:
    """The name by the state that an event meets, "" if only the state after it can tell."""
    match event:
        case PipelineBound():
            return "bound by a second first run" if state.bound else "bound"
        case CommitToTable():
            before = state.reported_offset(event.table, event.table_uuid)
            return "table reported further" if event.stored_offset > before else "table reported again"
        case DataComplete():
            return f"{event.kind} complete"
        case TableCheckpoint():
            return ""
        case _:
            return _NAMES[type(event)]


_NAMES: dict[type[Event], str] = {
    StartCommit: "batch started",
    DataWritten: "files of a batch",
    CommitComplete: "round complete",
    Paused: "paused",
    Resumed: "resumed",
    BatchAbandoned: "batch given up",
    CheckpointPart: "part of a checkpoint",
    Resolved: "answered",
}


def _checkpoint(state: CommitState, offset: int) -> str:
    if state.checkpoint is None or state.checkpoint.offset != offset:
        return "checkpoint overtaken by a publish"
    return "checkpoint in place of its events" if state.log_start > 0 else "checkpoint beside its events"

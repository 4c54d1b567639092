"""Keeping the positions of a pipeline that publishes nothing: brokers drop the offsets of groups without members."""

from __future__ import annotations

import time

from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.control.plane import AnyPlane
from calve.sink_core.control.state import AnyState

TASK = "keep_alive"

KEEP_ALIVE_AFTER_S = 42 * 3600
"""A quarter of the seven days after which brokers by default drop the offsets of a group without members."""


def is_due(state: AnyState, now_ms: int) -> bool:
    """Whether the positions were not committed for a while, as far as the log says."""
    if state.kept_ms is None:
        return state.last_publish is not None
    return now_ms - state.kept_ms > KEEP_ALIVE_AFTER_S * 1000


def keep_alive(plane: AnyPlane) -> TaskOutcome:
    """Commit every position again as it is, unless a publish did so not long ago. For paused pipelines too.

    The pipeline must be bound. Raises Fenced if others fence this again and again, UnknownOutcome if the broker stops
    answering.
    """
    state, now_ms = plane.log.refresh(), time.time_ns() // 1_000_000
    if state.last_publish is None:
        return _nothing(plane, f"pipeline {plane.pipeline.name} has not published anything yet")
    if state.kept_ms is not None and not is_due(state, now_ms):
        age_s = (now_ms - state.kept_ms) / 1000
        since = f"the last publish, {age_s:,.0f} s ago, committed them"
        return _nothing(plane, f"{since}; due after {KEEP_ALIVE_AFTER_S:,} s")
    number = plane.keep_alive()
    if not number:
        return _nothing(plane, "the group has no positions")
    did, numbers = f"{number:,} offsets committed again, as they were", {"offsets": number}
    return TaskOutcome(TASK, plane.pipeline.group, did, True, numbers, numbers)


def _nothing(plane: AnyPlane, why: str) -> TaskOutcome:
    return TaskOutcome(TASK, plane.pipeline.group, f"nothing to do: {why}", False)

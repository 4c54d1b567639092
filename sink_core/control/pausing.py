"""Pausing and resuming: two events on the control topic, which every host obeys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep, time_ns

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.control.plane import AnyPlane
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import CalveError
from calve.sink_core.timing import Deadline

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Pausing:
    """The pause in effect; not `written` if somebody had made it before. `offset` is its own, -1 unless written."""

    paused: Paused
    written: bool
    offset: int


def pause(plane: AnyPlane, by: str, reason: str) -> Pausing:
    """The pause that holds every host from now on; binds the pipeline. A batch in progress is still finished."""
    bound = plane.bind()
    if (already := plane.log.state.paused) is not None:
        return Pausing(already, written=False, offset=-1)
    paused = Paused(pipeline_id=bound.pipeline_id, by=by, reason=reason)
    return Pausing(paused, written=True, offset=plane.log.append(paused).offset)


def resume(plane: AnyPlane, by: str) -> Paused | None:
    """The pause that ended, None if there was none: then a stopped pipeline is tried again. Binds the pipeline."""
    bound = plane.bind()
    was = plane.log.state.paused
    plane.log.append(Resumed(pipeline_id=bound.pipeline_id, by=by))
    return was


def wait_until_idle(
    plane: AnyPlane, pausing: Pausing, timeout_s: float, *, giving_up: bool, on_progress: Callable[[str], None]
) -> tuple[str, ...]:
    """The ids of the batches that were given up, once none is in progress in a log read past the pause.

    Up to there the log may be hidden behind an open transaction, and with it a batch that was planned before the pause.
    Raises CalveError if somebody resumes, and at the time-out unless `giving_up`.
    """
    deadline = Deadline.after(timeout_s)
    while True:
        state: AnyState = plane.log.refresh()
        seen, batches = state.next_offset > pausing.offset, _in_progress(state)
        if seen and state.paused is None:
            by = state.resumed.by if state.resumed else "somebody"
            raise CalveError(
                f"resumed by {by} during the wait", hint="calve pause FILE --wait pauses again", code=Code.RESUMED
            )
        if seen and not batches:
            return ()
        listed = ", ".join(batches) or "not known yet, a transaction hides the end of the control topic"
        if deadline.passed:
            if giving_up:
                return plane.give_up()
            raise CalveError(
                f"batches in progress after a wait of {timeout_s:g} s: {listed}",
                hint="the pause is in effect anyway; `calve pause FILE --wait --give-up` ends what dead runs have left",
                code=Code.STILL_UNDER_WAY,
            )
        on_progress(f"waiting for batches in progress: {listed}")
        sleep(POLL_S)


def _in_progress(state: AnyState) -> list[str]:
    """The batches that may still be published, each with its age."""
    now_ms, planned = time_ns() // 1_000_000, [logged.event for logged in state.outstanding()]
    return [f"{each.batch_id} for {max(0, now_ms - each.written_at_ms) / 1000:,.0f} s" for each in planned]


def since(paused: Paused) -> str:
    """When the pause began, ISO 8601 in UTC."""
    return datetime.fromtimestamp(paused.written_at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def told(paused: Paused) -> str:
    """Since when, by whom and why, on one line."""
    return f"{since(paused)} by {paused.by}: {paused.reason}"

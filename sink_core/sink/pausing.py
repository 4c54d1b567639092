"""Pausing and resuming: two events on the control topic, which every host obeys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep, time_ns

from calve.sink_core.control.events import Paused, Resumed
from calve.sink_core.error_codes.operations import RESUMED, STILL_UNDER_WAY
from calve.sink_core.errors import CalveError
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.status import in_flight
from calve.sink_core.timing import Deadline

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Pausing:
    """The pause in effect; not `written` if somebody had made it before. `offset` is its own, -1 unless written."""

    paused: Paused
    written: bool
    offset: int


def pause(session: Session, by: str, reason: str) -> Pausing:
    """The pause that holds every host from now on; binds the session. A batch in progress is still finished."""
    bound = session.bind()
    if (already := session.log.state.paused) is not None:
        return Pausing(already, written=False, offset=-1)
    paused = Paused(pipeline_id=bound.pipeline_id, by=by, reason=reason)
    return Pausing(paused, written=True, offset=session.log.append(paused).offset)


def resume(session: Session, by: str) -> Paused | None:
    """The pause that ended, None if there was none: then a stopped pipeline is tried again. Binds the session."""
    bound = session.bind()
    was = session.log.state.paused
    session.log.append(Resumed(pipeline_id=bound.pipeline_id, by=by))
    return was


def wait_until_idle(
    session: Session, pausing: Pausing, timeout_s: float, *, giving_up: bool, on_progress: Callable[[str], None]
) -> tuple[str, ...]:
    """The ids of the batches that were given up, once none is in progress in a log read past the pause.

    Up to there the log may be hidden behind an open transaction, and with it a batch that was planned before the pause.
    Raises CalveError if somebody resumes, and at the time-out unless `giving_up`.
    """
    deadline = Deadline.after(timeout_s)
    while True:
        state = session.log.refresh()
        seen, batches = state.next_offset > pausing.offset, list(in_flight(state, time_ns() // 1_000_000))
        if seen and state.paused is None:
            by = state.resumed.by if state.resumed else "somebody"
            raise CalveError(
                f"resumed by {by} during the wait", hint="calve pause FILE --wait pauses again", code=RESUMED
            )
        if seen and not batches:
            return ()
        listed = ", ".join(f"{batch.batch_id} for {batch.age_s:,.0f} s" for batch in batches)
        listed = listed or "not known yet, a transaction hides the end of the control topic"
        if deadline.passed:
            if giving_up:
                return session.publisher.give_up().batch_ids
            raise CalveError(
                f"batches in progress after a wait of {timeout_s:g} s: {listed}",
                hint="the pause is in effect anyway; `calve pause FILE --wait --give-up` ends what dead runs have left",
                code=STILL_UNDER_WAY,
            )
        on_progress(f"waiting for batches in progress: {listed}")
        sleep(POLL_S)


def since(paused: Paused) -> str:
    """When the pause began, ISO 8601 in UTC."""
    return datetime.fromtimestamp(paused.written_at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def told(paused: Paused) -> str:
    """Since when, by whom and why, on one line."""
    return f"{since(paused)} by {paused.by}: {paused.reason}"

"""Trimming the control topic: a checkpoint for what was said, then the events go that nobody needs any more.

In this order, so that whoever reads the log finds the events or the checkpoint that stands for them:

1. read the log, then what only others know of it: what is committed to a table, only the table knows
2. write a checkpoint of everything read
3. wait until it lies below the last stable offset, and look at everything once more
4. delete

Crash points (docs/design.md has the whole table):

    trim.before-checkpoint  nothing written
    trim.after-part         parts that no checkpoint names; the next trim writes others
    trim.after-checkpoint   a checkpoint too many; the next trim writes another
    trim.before-delete      as above

A run trims as well, at its end, once so many events are old that reading them takes long: without Dagster nobody else
does, and a log that only grows is read by every process from its start. That is the same trim in a process that has
read the log already: whatever it may meet, one by hand beside a run meets. It fails no run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from calve.sink_core.control.checkpoint import Kept, Needed
from calve.sink_core.control.maintenance_report import OnProgress, TaskOutcome
from calve.sink_core.control.plane import AnyPlane
from calve.sink_core.control.rounds import Ending, Progress, blocked
from calve.sink_core.control.state import AnyState
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.failpoints import reach

TASK = "trim"

RUN_FROM = 100_000
"""Old events from which on a run trims."""

TRIES = 5
"""Checkpoints that a publish or a change of a table may overtake before the trim is left to the next time."""


def first_kept(state: AnyState, needed: Iterable[Kept], *, first_young: int, older_than_s: float) -> Kept:
    """The first event that has to stay. Pure.

    That is the lowest of the end of what was read, the last publish (and so every batch planned on it), the first event
    younger than `older_than_s` (at `first_young`), and what the pipeline's kind has `needed`.
    """
    bounds = [
        Kept(state.next_offset, "every event below the checkpoint could go"),
        Kept(first_young, f"events from control offset {first_young} on are younger than {older_than_s:,.0f} s"),
    ]
    if state.complete is not None:
        bounds.append(Kept(state.complete.offset, f"the last publish is at control offset {state.complete.offset}"))
    return min([*bounds, *needed], key=lambda kept: kept.offset)


@dataclass(frozen=True, slots=True)
class _Look:
    """The log at one moment, and what is needed of it. `log_start` is the broker's."""

    log_start: int
    kept: Kept
    needed: Needed


def trim_after_run(plane: AnyPlane, report: Ending, progress: Callable[[Progress], None]) -> None:
    """Trim a log with many old events; the run's report says what keeps it from that."""
    config, state = plane.pipeline.config.maintenance, plane.log.state
    if state.next_offset - state.log_start < RUN_FROM:
        return
    try:
        trim(plane, older_than_s=config.trim.older_than, at_least=RUN_FROM, on_progress=partial(_told, progress))
    except CalveError as error:
        held = Blocker.of(f"control topic {plane.log.topic}", error, state.oldest_ms)
        report.blockers = [*report.blockers, held]
        report.ended += blocked("; not trimmed: ", [held])


def trim(
    plane: AnyPlane,
    *,
    older_than_s: float,
    at_least: int = 1,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> TaskOutcome:
    """Delete the events that are older than `older_than_s` and that nobody needs, if there are `at_least` so many. Safe
    beside everything else.

    Nothing is done while the control topic or the binding contradicts the world. The pipeline must be bound. Raises
    Unreachable if a part does not answer, or a transaction hides the checkpoint for a minute.
    """
    try:
        return _trim(plane, older_than_s, at_least, on_progress or (lambda _step: None), dry_run=dry_run)
    except FindingError as error:
        return _left(plane, f"not trimmed: {error.message}")


def _trim(plane: AnyPlane, older_than_s: float, at_least: int, tell: OnProgress, *, dry_run: bool) -> TaskOutcome:
    log = plane.log
    for _ in range(TRIES):
        look = _look(plane, older_than_s, tell, at_least)
        if look is None:
            return _left(plane, f"nothing to do: pipeline {plane.pipeline.name} has not published anything yet")
        below, number = look.kept.offset, look.kept.offset - look.log_start
        if number < at_least:
            begins = f"nothing to do: the log begins at control offset {look.log_start}"
            return _left(plane, f"{begins}, and {look.kept.why}", look)
        if dry_run:
            would = f"{number:,} events below control offset {below} would be deleted"
            return _left(plane, f"{would}; {look.kept.why}", look)
        if plane.rules.trim_writes_a_checkpoint:
            _write_checkpoint(plane, look, tell)
            if plane.rules.trim_waits_for_its_checkpoint and not _stands(plane, below, older_than_s, tell):
                continue
        reach("trim.before-delete")
        tell(f"deleting {number:,} events")
        log.delete_below(below)
        did = f"{number:,} events below control offset {below} deleted; {look.kept.why}"
        before, after = _numbers(plane, look.log_start), _numbers(plane, below)
        return TaskOutcome(TASK, log.topic, did, True, before, after)
    overtaken = f"{TRIES} checkpoints were overtaken by a publish or a change of a table"
    return _left(plane, f"not trimmed: {overtaken}; the next trim tries again")


def _write_checkpoint(plane: AnyPlane, look: _Look, tell: OnProgress) -> None:
    log = plane.log
    tell(f"writing a checkpoint up to control offset {log.state.next_offset}")
    reach("trim.before-checkpoint")
    *parts, checkpoint = look.needed.checkpoint(look.kept.offset)
    for part in parts:
        log.append(part)
        reach("trim.after-part")
    log.append(checkpoint)
    reach("trim.after-checkpoint")


def _stands(plane: AnyPlane, below: int, older_than_s: float, tell: OnProgress) -> bool:
    """Whether a checkpoint that can be read stands for every event below an offset, and still nobody needs one."""
    state = plane.log.refresh_to_end()
    again = _look(plane, older_than_s, tell)
    read = state.checkpoint is not None and state.checkpoint.event.up_to_offset >= below
    return read and again is not None and again.kept.offset >= below


def _look(plane: AnyPlane, older_than_s: float, tell: OnProgress, at_least: int = 1) -> _Look | None:
    """None if nothing was ever published. Raises FindingError for what stands against the log as a whole.

    Whom else to ask what it needs is asked only if there are `at_least` so many events that could go.
    """
    log = plane.log
    plane.bind()
    if log.state.last_publish is None:
        return None
    log_start = log.log_start()
    young = log.first_since(time.time_ns() // 1_000_000 - round(older_than_s * 1000))
    old = first_kept(log.state, (), first_young=young, older_than_s=older_than_s)
    if old.offset - log_start < at_least:
        return _Look(log_start, old, Needed((), lambda _below: ()))
    needed = plane.needed(tell)
    kept = first_kept(log.state, needed.kept, first_young=young, older_than_s=older_than_s)
    return _Look(log_start, kept, needed)


def _told(progress: Callable[[Progress], None], step: str) -> None:
    progress(Progress("trim", step))


def _left(plane: AnyPlane, did: str, look: _Look | None = None) -> TaskOutcome:
    numbers = _numbers(plane, look.log_start) if look else {}
    return TaskOutcome(TASK, plane.log.topic, did, False, numbers, numbers)


def _numbers(plane: AnyPlane, log_start: int) -> dict[str, int]:
    return {"events": plane.log.state.next_offset - log_start}

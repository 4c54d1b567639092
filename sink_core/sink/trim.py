"""Trimming the control topic: a checkpoint for what was said, then the events go that nobody needs any more.

In this order, so that whoever reads the log finds the events or the checkpoint that stands for them:

1. read the log, then each table it ever named: what a table has taken in, only the table knows
2. write a checkpoint of everything read
3. wait until it lies below the last stable offset, and look at log and tables once more
4. delete

Crash points (docs/design.md has the whole table):

    trim.before-checkpoint  nothing written
    trim.after-part         parts that no checkpoint names; the next trim writes others
    trim.after-checkpoint   a checkpoint too many; the next trim writes another
    trim.before-delete      as above
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.findings import FINDINGS, OTHER_CLUSTER
from calve.sink_core.iceberg.commit.view import TableView
from calve.sink_core.iceberg.examine.table import load_viewed
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.log.checkpoint import table_checkpoint_of
from calve.sink_core.tables.log.parts import in_parts
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tables.maintenance_report import OnProgress, TaskOutcome

TASK = "trim"

TRIES = 5
"""Checkpoints that a publish or a change of a table may overtake before the trim is left to the next time."""

_OF_THE_LOG = {kind.name for kind in FINDINGS.values() if kind.part == "control topic" or kind is OTHER_CLUSTER}

Taken = Mapping[str, int | None]
"""By table the control offset (exclusive) up to which it has taken events in; None for one that is gone."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Events from the control offset `offset` on stay, and the reason."""

    offset: int
    why: str


def first_kept(state: CommitState, taken: Taken, *, first_young: int, older_than_s: float) -> Kept:
    """The first event that has to stay. Pure.

    That is the lowest of the end of what was read, the last publish (and so every batch planned on it), the first event
    younger than `older_than_s` (at `first_young`), the first of a batch that is not complete, and the first that names
    a table which has not taken it in. A table that `taken` lacks has taken in nothing.
    """
    bounds = [
        Kept(state.next_offset, "every event below the checkpoint could go"),
        Kept(first_young, f"events from control offset {first_young} on are younger than {older_than_s:,.0f} s"),
    ]
    if state.complete is not None:
        bounds.append(Kept(state.complete.offset, f"the last publish is at control offset {state.complete.offset}"))
    if state.limit < state.next_offset:
        bounds.append(Kept(state.limit, f"the batch at control offset {state.limit} is not complete"))
    if state.rules.trim_asks_the_tables:
        bounds += _lacking(state, taken)
    return min(bounds, key=lambda kept: kept.offset)


def _lacking(state: CommitState, taken: Taken) -> Iterator[Kept]:
    """For each table that holds events back, the first one it lacks.

    Events for another incarnation count too: by them it is found that the table was recreated. Of a table that is gone
    those stay that nobody reported as taken in; that it is gone, the reports tell.
    """
    for table, written in state.written.items():
        stored = taken.get(table, 0)
        for logged in written:
            has = state.reported_offset(table, logged.event.table_uuid) if stored is None else stored
            if logged.offset >= has:
                yield Kept(logged.offset, f"{table} has not taken in the event at control offset {logged.offset}")
                break


@dataclass(frozen=True, slots=True)
class _Look:
    """Log and tables at one moment. `log_start` is the broker's; `findings` are those on tables."""

    log_start: int
    kept: Kept
    stored: Mapping[str, Mapping[str, int]]
    findings: tuple[str, ...]


def trim(
    session: Session, *, older_than_s: float, dry_run: bool = False, on_progress: OnProgress | None = None
) -> TaskOutcome:
    """Delete the events that are older than `older_than_s` and that no table needs. Safe beside everything else.

    Nothing is done while the control topic or the binding contradicts the world. The session must be bound. Raises
    Unreachable if a part does not answer, or a transaction hides the checkpoint for a minute.
    """
    try:
        return _trim(session, older_than_s, on_progress or (lambda _step: None), dry_run=dry_run)
    except FindingError as error:
        return _left(session, f"not trimmed: {error.message}")


def _trim(session: Session, older_than_s: float, tell: OnProgress, *, dry_run: bool) -> TaskOutcome:
    log = session.log
    for _ in range(TRIES):
        look = _look(session, older_than_s, tell)
        if look is None:
            return _left(session, f"nothing to do: pipeline {session.pipeline.name} has not published anything yet")
        below, number = look.kept.offset, look.kept.offset - look.log_start
        if number <= 0:
            begins = f"nothing to do: the log begins at control offset {look.log_start}"
            return _left(session, f"{begins}, and {look.kept.why}", look)
        if dry_run:
            would = f"{number:,} events below control offset {below} would be deleted"
            return _left(session, f"{would}; {look.kept.why}", look)
        if session.rules.trim_writes_a_checkpoint:
            _write_checkpoint(session, look, tell)
            if session.rules.trim_waits_for_its_checkpoint and not _stands(session, below, older_than_s, tell):
                continue
        reach("trim.before-delete")
        tell(f"deleting {number:,} events")
        log.delete_below(below)
        did = f"{number:,} events below control offset {below} deleted; {look.kept.why}"
        before, after = _numbers(session, look.log_start), _numbers(session, below)
        return TaskOutcome(TASK, log.topic, did, True, before, after)
    overtaken = f"{TRIES} checkpoints were overtaken by a publish or a change of a table"
    return _left(session, f"not trimmed: {overtaken}; the next trim tries again")


def _write_checkpoint(session: Session, look: _Look, tell: OnProgress) -> None:
    log = session.log
    tell(f"writing a checkpoint up to control offset {log.state.next_offset}")
    reach("trim.before-checkpoint")
    below, stored = look.kept.offset, look.stored
    whole = table_checkpoint_of(log.state, delete_below=below, stored=stored, open_findings=look.findings)
    parts, checkpoint = in_parts(whole)
    for part in parts:
        log.append(part)
        reach("trim.after-part")
    log.append(checkpoint)
    reach("trim.after-checkpoint")


def _stands(session: Session, below: int, older_than_s: float, tell: OnProgress) -> bool:
    """Whether a checkpoint that can be read stands for every event below an offset, and still no table needs one."""
    state = session.log.refresh_to_end()
    again = _look(session, older_than_s, tell)
    read = state.checkpoint is not None and state.checkpoint.event.up_to_offset >= below
    return read and again is not None and again.kept.offset >= below


def _look(session: Session, older_than_s: float, tell: OnProgress) -> _Look | None:
    """None if nothing was ever published. Raises FindingError for what stands against the log as a whole."""
    log = session.log
    session.bind()
    if log.state.last_publish is None:
        return None
    taken: dict[str, int | None] = {}
    stored: dict[str, dict[str, int]] = {}
    findings: list[str] = []
    for name in log.state.tables:
        tell(f"looking at {name}")
        view, finding = _view(session, name)
        taken[name] = view.stored_offset if view else None
        if view and view.stored_offset:
            stored[name] = {view.uuid: view.stored_offset}
        if finding:
            findings.append(f"{finding} {name}")
    young = log.first_since(time.time_ns() // 1_000_000 - round(older_than_s * 1000))
    kept = first_kept(log.state, taken, first_young=young, older_than_s=older_than_s)
    return _Look(log.log_start(), kept, stored, tuple(findings))


def _view(session: Session, name: str) -> tuple[TableView | None, str | None]:
    """The table as it is now, None if it is gone; and the name of the finding on it."""
    finding: str | None = None
    try:
        loaded = session.committer().load_checked(name)
    except FindingError as error:
        if error.finding in _OF_THE_LOG:
            raise
        finding = error.finding
        loaded = load_viewed(session.catalog, name, tag=session.pipeline.tag, keys=session.keys)
    return (loaded[1] if loaded else None), finding


def _left(session: Session, did: str, look: _Look | None = None) -> TaskOutcome:
    numbers = _numbers(session, look.log_start) if look else {}
    return TaskOutcome(TASK, session.log.topic, did, False, numbers, numbers)


def _numbers(session: Session, log_start: int) -> dict[str, int]:
    return {"events": session.log.state.next_offset - log_start}

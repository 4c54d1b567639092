"""Answers to findings on tables: accept and recommit. Each is one snapshot by one swap, which moves the tag as well.

Decided again on each attempt, on the metadata that the swap asserts; nothing that was written is ever deleted. Crash
points (the whole table is in docs/design.md):

    resolve.after-create    a table that was dropped exists again, empty: it is "recreated" by then
    resolve.after-list      a manifest list that nobody names: an orphan
    resolve.after-swap      the table is as answered, and says so itself; a coordinator reports it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.control.events import Logged
from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.findings import TABLE_DROPPED, TABLE_RECREATED
from calve.sink_core.iceberg.commit.preconditions import check_still_there
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up
from calve.sink_core.iceberg.format.table import IcebergTable
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.replace.named_files import files_gone, files_in_head
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve.loss import Loss, lost_by_recreation, lost_by_roll_back
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.history.record import to_summary
from calve.sink_core.tables.history.shares import Step, manifests_of, record_of_snapshot, shares_of
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.timing import back_off

_GONE = (TABLE_DROPPED.name, TABLE_RECREATED.name)


@dataclass(frozen=True, slots=True)
class Taking:
    """What the answering snapshots hold and say. `steps` may write files; `line` is for people."""

    steps: Callable[[], Sequence[Step]]
    line: str


Build = Callable[[LoadedTable, CommitState], Taking]


def accept(session: Session, found: FindingError) -> Answer:
    """Go on with the table as it is: an empty snapshot that has the highest known control offset."""

    def build(table: LoadedTable, state: CommitState) -> Taking:
        view = table.view
        loss = _loss(found, view, state)
        rows, batches = sum(e.event.rows for e in loss.events), len(loss.events)
        line = (
            f"{found.subject}: control offset {view.stored_offset} → {loss.stored}, {rows:,} rows of {batches} batches "
            "whose events are known are given up"
        )
        given_up = loss.given_up_with(view)
        steps = [
            Step(
                manifests_of(share.events),
                answering(session, share.events, share.stored_offset, given_up, view, state),
            )
            for share in shares_of(loss.kept, loss.stored, "")
        ]
        return Taking(lambda: steps, line)

    return answer_table(session, found, build)


def recommit(session: Session, found: FindingError) -> Answer:
    """Append the files of exactly the batches that the table has lost, if all of them are still there."""

    def build(loaded: LoadedTable, state: CommitState) -> Taking:
        if not isinstance(loaded, IcebergTable):
            raise no_answer(found, "recommit", "of a table of its format the files of a batch are not kept")
        table, view = loaded.table, loaded.view
        loss = _loss(found, view, state)
        if loss.unknown:
            raise no_answer(found, "recommit", loss.unknown)
        if again := [logged.event.batch_id for logged in loss.events if logged.event.replaces or logged.event.removes]:
            raise no_answer(
                found, "recommit", f"range job {again[0]} replaced rows of a table that is not there any more"
            )
        if changing := [logged.event.batch_id for logged in loss.events if logged.event.deletes]:
            raise no_answer(
                found,
                "recommit",
                f"batch {changing[0]} changed rows, and would change what came after it; put main back to the tagged "
                f"snapshot ({view.tag}) if the table still has it, or",
            )
        check_still_there(table, loss.events)
        if trouble := not_there(table, loss.events) or _held_already(table, loss.events):
            raise no_answer(found, "recommit", trouble)
        rows = sum(e.event.rows for e in loss.events)
        line = (
            f"{found.subject}: control offset {view.stored_offset} → {loss.stored}, {rows:,} rows of "
            f"{len(loss.events)} batches are appended"
        )
        given_up = view.latest.given_up if view.latest else ()
        said = answering(session, loss.events, loss.stored, given_up, view, state)
        return Taking(lambda: [Step(manifests_of(loss.events), said)], line)

    return answer_table(session, found, build)


def _loss(found: FindingError, view: TableView, state: CommitState) -> Loss:
    return lost_by_recreation(view, state) if found.finding in _GONE else lost_by_roll_back(view, state)


def answer_table(session: Session, found: FindingError, build: Build, *, when_dropped: str = "") -> Answer:
    """Puts on the table what `build` says; `when_dropped` tells what that is for one that has to be created first."""
    seen = session.look(found.subject)
    if seen.table is None:
        _creatable(session, found)
        empty = f"is created again, empty; all {_rows(session, found):,} rows known are given up"
        would = f"{found.subject}: {when_dropped or empty}"
    else:
        would = build(seen.table, session.log.state).line
    return Answer((would,), lambda: _carry_out(session, found, build))


def _carry_out(session: Session, found: FindingError, build: Build) -> Lines:
    name = found.subject
    lost_to: Exception | None = None
    for attempt_number in range(ATTEMPTS):
        state = session.log.refresh_to_end()
        seen = session.look(name)
        if seen.finding is None and attempt_number:
            return (f"{name}: the finding is gone",)
        if not _same(seen.finding, found):
            what = seen.finding.message if seen.finding else "the finding is gone"
            raise overtaken(session, f"{name}: {what}")
        if seen.table is None:
            session.create_missing([name])
            reach("resolve.after-create")
            # From the start: whoever came by meanwhile may have answered it, and gone on.
            continue
        taking = build(seen.table, state)
        outcome = session.lake_of(name).put(seen.table, taking.steps)
        if not isinstance(outcome, Exception):
            return (f"{taking.line}; snapshot {outcome}",)
        lost_to = outcome
        back_off(attempt_number)
    raise gave_up(name, lost_to)


def _same(now: FindingError | None, found: FindingError) -> bool:
    """A table that was created again since it was found dropped is recreated."""
    return now is not None and (now.finding == found.finding or (now.finding in _GONE and found.finding == _GONE[0]))


def _creatable(session: Session, found: FindingError) -> None:
    if found.subject not in session.pipeline.table_names:
        raise no_answer(found, "accept", "the table is not in the pipeline file any more; name it there again")


def _rows(session: Session, found: FindingError) -> int:
    return sum(logged.event.rows for logged in session.log.state.written.get(found.subject, []))


def answering(
    session: Session,
    events: Sequence[Logged[DataWritten]],
    stored: int,
    given_up: tuple[tuple[int, int], ...],
    view: TableView,
    state: CommitState,
) -> dict[str, str]:
    """What a snapshot says that has `events` and stores `stored`, whatever lies below."""
    if not session.rules.accepting_stores_the_highest_offset:
        stored = view.nearest.own.stored_offset if view.nearest and view.nearest.own else 0
    last = _last_event_id(stored, view, state)
    own = record_of_snapshot(
        events,
        stored_offset=stored,
        last_event_id=last,
        given_up=given_up,
        view=view,
        state=state,
        now=session.identity,
        from_now=view.table in session.pipeline.from_now,
    )
    return to_summary(session.keys, own)


def _last_event_id(stored: int, view: TableView, state: CommitState) -> str:
    """Of the last event for the table below `stored`; where that was trimmed, one that a checkpoint names."""
    below = [e for e in state.written.get(view.table, []) if e.offset < stored]
    if below:
        return below[-1].event.event_id
    trimmed = state.last_events.get(view.table, set[str]())
    known = view.latest.last_event_id if view.latest else ""
    return known if known in trimmed or not trimmed else min(trimmed)


def not_there(table: Table, events: Sequence[Logged[DataWritten]]) -> str:
    """Which files of the events do not exist any more; empty if all do."""
    missing = list(files_gone(table, manifests_of(events)))
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"files are gone: {', '.join(missing[:3])}{more}" if missing else ""


def _held_already(table: Table, events: Sequence[Logged[DataWritten]]) -> str:
    """Whoever put files back by other means has put their rows back; a second time they would count double."""
    held = files_in_head(table, manifests_of(events))
    return f"the head names files of the batches already: {held[0]}" if held else ""

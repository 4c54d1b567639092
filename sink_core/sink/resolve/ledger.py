"""The answer to a ledger that was dropped or created again: its rows are in the files that the events name.

They are written anew, by name and not by field id, since the new table may number its columns otherwise. Crash points
are those of the other answers on tables; files that were written for an attempt that did not land are orphans.
"""

from __future__ import annotations

import uuid

from calve.sink_core.control.answers import Answer, no_answer
from calve.sink_core.errors import FindingError
from calve.sink_core.iceberg.format.table import iceberg
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.read.rows import all_rows
from calve.sink_core.iceberg.replace.named_files import copied
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve.loss import lost_by_recreation
from calve.sink_core.sink.resolve.tables import Taking, answer_table, answering, not_there
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.history.shares import Step, manifests_of
from calve.sink_core.tables.log.state import CommitState


def rebuild(session: Session, found: FindingError) -> Answer:
    """Put the rows of every batch into the ledger that is there now, or is created; refused if one can't be had."""

    def build(loaded: LoadedTable, state: CommitState) -> Taking:
        table, view = iceberg(loaded), loaded.view
        loss = lost_by_recreation(view, state)
        # Of a rebuild whose tag and snapshots somebody has removed nothing but its rows is left.
        held = _batches_in(table)
        events = tuple(logged for logged in loss.events if logged.event.batch_id not in held)
        if trouble := trimmed(state, view.table) or not_there(table, events):
            raise no_answer(found, "rebuild", trouble)
        rows = sum(logged.event.rows for logged in events)
        line = f"{found.subject}: {rows:,} rows of {len(events)} batches are written into it from their files"

        said = answering(session, (*events, *loss.kept), loss.stored, (), view, state)

        def steps() -> list[Step]:
            rewritten = copied(table, manifests_of(events), f"calve-rebuilt-{uuid.uuid4()}")
            return [Step([*rewritten, *manifests_of(loss.kept)], said)]

        return Taking(steps, line)

    if trouble := trimmed(session.log.state, found.subject):
        raise no_answer(found, "rebuild", trouble)
    return answer_table(session, found, build, when_dropped="is created again, and gets the rows of every batch back")


def trimmed(state: CommitState, ledger: str) -> str:
    """Why the log does not name the ledger's files of every batch; empty if it does. Pure."""
    named = {e.event.batch_id for e in state.written.get(ledger, []) if e.event.batch_id in state.batches}
    lacking = state.published - len(named)
    return f"the events of {lacking} batches were trimmed" if lacking > 0 else ""


def _batches_in(table: Table) -> set[str]:
    """The batches of which the head has rows."""
    return set(all_rows(table, ("batch_id",)).column("batch_id").unique().to_pylist())

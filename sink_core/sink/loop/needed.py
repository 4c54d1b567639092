"""What tables need of the control log: the events that they have not, and a checkpoint of what they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from calve.sink_core.control.checkpoint import Kept, Needed
from calve.sink_core.control.events import Event
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.errors import CalveError
from calve.sink_core.findings import FINDINGS, OTHER_CLUSTER
from calve.sink_core.tables.format.lake import Looked
from calve.sink_core.tables.log.checkpoint import table_checkpoint_of
from calve.sink_core.tables.log.parts import in_parts
from calve.sink_core.tables.log.state import CommitState

_OF_THE_LOG = {kind.name for kind in FINDINGS.values() if kind.part == "control topic" or kind is OTHER_CLUSTER}

Taken = Mapping[str, int | None]
"""By table the control offset (exclusive) up to which it has all events; None for one that is gone."""


def kept_for_tables(state: CommitState, taken: Taken) -> Iterator[Kept]:
    """The first event of a batch that is not complete, and the first that names a table which has not taken it in. A
    table that `taken` lacks has nothing. Pure.
    """
    if state.limit < state.next_offset:
        yield Kept(state.limit, f"the batch at control offset {state.limit} is not complete")
    if state.rules.trim_asks_the_tables:
        yield from _lacking(state, taken)


def _lacking(state: CommitState, taken: Taken) -> Iterator[Kept]:
    """For each table that holds events back, the first one it lacks.

    Events for another incarnation count too: by them it is found that the table was recreated. Of a table that is gone
    those stay that nobody reported as committed; that it is gone, the reports tell.
    """
    for table, written in state.written.items():
        stored = taken.get(table, 0)
        for logged in written:
            has = state.reported_offset(table, logged.event.table_uuid) if stored is None else stored
            if logged.offset >= has:
                yield Kept(logged.offset, f"{table} lacks the event at control offset {logged.offset}")
                break


def needed(state: CommitState, look: Callable[[str], Looked], tell: OnProgress) -> Needed:
    """What the tables need that the log, as it was read, speaks of. Raises FindingError for what stands against the log
    as a whole.

    A table that can't be loaded has nothing, as far as anybody knows: all events for it stay.
    """
    taken: dict[str, int | None] = {}
    stored: dict[str, dict[str, int]] = {}
    findings: list[str] = []
    for name in state.tables:
        tell(f"looking at {name}")
        try:
            looked = look(name)
        except CalveError as error:
            findings.append(f"{error.code} {name}")
            continue
        table, error = looked.table, looked.finding
        if error and error.finding in _OF_THE_LOG:
            raise error
        taken[name] = table.stored_offset if table else None
        if table and table.stored_offset:
            stored[name] = {table.uuid: table.stored_offset}
        if error:
            findings.append(f"{error.finding} {name}")

    def checkpoint(below: int) -> Sequence[Event]:
        whole = table_checkpoint_of(state, delete_below=below, stored=stored, open_findings=findings)
        parts, last = in_parts(whole)
        return [*parts, last]

    return Needed(tuple(kept_for_tables(state, taken)), checkpoint)

"""Writing again once the tables have what the records need: what a first try wants is changed once, for all tasks.

What the first try wrote is nobody's, and left to orphan cleanup: the names of all files are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from pyiceberg.schema import Schema

from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.errors import CalveError
from calve.sink_core.records.columns.evolution import merged_by_table
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.format.lake import LoadedTable

CHANGES = 3
"""How often tables are changed for one batch. What does not fit them after that is for the dead letters."""

Tables = Mapping[str, LoadedTable]
ChangeTables = Callable[[Mapping[str, Schema]], Tables]
"""Gives tables, by name, what is wanted of them, and loads all again."""


class Wants(Protocol):
    """What a task came back with. `wanted` has, by table, the fields that its records need and the table lacks."""

    @property
    def wanted(self) -> Mapping[str, Schema]: ...


def give(
    session: Session, wanted: Mapping[str, Schema], on_progress: OnProgress, *, new: Collection[str] = ()
) -> Iterator[tuple[str, CalveError | None]]:
    """What became of giving each table what is wanted of it, as far as its `evolve` allows; the `new` ones, which
    records name, are created before. Raises as `Session.create_named` does.
    """
    for name in session.create_named({name: wanted[name] for name in sorted(new)}):
        on_progress(Progress("write", f"{name}: created"))
    for table in session.pipeline.tables:
        if table.name in wanted and table.name not in new:
            try:
                changes = session.lake_of(table.name).change_schema(table.name, wanted[table.name], table.evolve)
            except CalveError as error:
                yield table.name, error
            else:
                on_progress(Progress("write", f"{table.name}: {', '.join(changes) or 'changed by others'}"))
                yield table.name, None


R = TypeVar("R", bound=Wants)


def write_with_evolution(
    tables: Tables, write: Callable[[Tables, bool], Sequence[R]], change: ChangeTables | None
) -> tuple[Tables, Sequence[R]]:
    """The tables as they were written to, and what all tasks of that try came back with.

    `write` is told the tables, and whether its tasks may want something. Without `change` they may not.
    """
    for _ in range(CHANGES if change else 0):
        results = write(tables, True)
        wanted = merged_by_table(result.wanted for result in results)
        if not wanted or change is None:
            return tables, results
        tables = change(wanted)
    return tables, write(tables, False)

"""What can't be said of a table together with its mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sink_core.config.model import Location
from sink_core.config.tables import Table, TableDefaults


def row_changes(
    tables: Sequence[Table], defaults: TableDefaults, value_type: str
) -> Iterator[tuple[Location, str, object]]:
    """Where the tables' settings and their modes contradict each other, and what to say about it."""
    for number, table in enumerate(tables):
        at: Location = ("tables", number)
        if table.mode == "append":
            if table.key is not None:
                yield (*at, "key"), "goes with mode: upsert; an append keeps every record as a row", None
            continue
        if table.key is not None and len(set(table.key)) < len(table.key):
            yield (*at, "key"), "names a column twice", None
        if value_type in ("string", "bytes"):
            yield (*at, "mode"), f"a value of type {value_type} has no columns to tell rows by", None
        if table.auto_create and not (table.key or table.auto_create.identifier_fields):
            yield (*at, "key"), f"missing; a table that is created for mode: {table.mode} needs it", None
        if table.history == "replay":
            text = f"replay would put old records over newer ones; mode: {table.mode} goes with none"
            yield (*at, "history"), text, None
        for name, given in (("where", table.where), ("name_from", table.name_from), ("transform", table.transform)):
            if given is not None:
                text = (
                    f"not available yet with mode: {table.mode}: a record that is left out may be a row's last change"
                )
                yield (*at, name), text, None
        if "make_optional" in (defaults.evolve if table.evolve is None else table.evolve):
            yield (
                (*at, "evolve"),
                f"make_optional could make the key optional; leave it out for mode: {table.mode}",
                None,
            )

"""What can't be said of a table in Hudi's format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calve.sink_core.config.connections import HudiConnection
from calve.sink_core.config.model import Location
from calve.sink_core.config.table_formats import HUDI
from calve.sink_core.config.tables import AutoCreate, HudiTable, Table, TableDefaults

Problem = tuple[Location, str, object]

_NOT_CREATED = {
    "sort_order": "rows of a Hudi table are in the order in which they were read; clustering sorts them",
    "identifier_fields": "a row of a Hudi table is told by its Kafka position, or by key where records change rows",
    "properties": "these are Iceberg's table properties; a Hudi table has none of them",
    "location": "a Hudi table is where its name says, below the warehouse of `hudi`",
}
"""Settings of `auto_create`, and why a Hudi table has no use for them."""


def hudi_tables(
    tables: Sequence[Table], defaults: TableDefaults, chosen: str | HudiConnection | None
) -> Iterator[Problem]:
    """Where tables of a format and their settings contradict each other, and what to say about it."""
    ours = [(("tables", number), table) for number, table in enumerate(tables) if table.format == HUDI]
    if ours and chosen is None:
        yield (
            ("hudi",),
            f"{ours[0][1].name} is a Hudi table: say where such tables are, as hudi: {{warehouse: PATH}}",
            None,
        )
    for at, table in ours:
        yield from _settings(at, table, defaults)
    for number, table in enumerate(tables):
        if table.format != HUDI and table.hudi != HudiTable():
            yield ("tables", number, "hudi"), "goes with format: hudi", None


def _settings(at: Location, table: Table, defaults: TableDefaults) -> Iterator[Problem]:
    if table.mode != "append":
        yield from _row_changes(at, table)
    elif not (defaults.kafka_column if table.kafka_column is None else table.kafka_column):
        text = "a Hudi table needs the column _kafka, of which its record keys are made: set true, or format: iceberg"
        yield (*at, "kafka_column"), text, False
    steps = defaults.evolve if table.evolve is None else table.evolve
    if others := [step for step in steps if step != "add_column"]:
        text = f"a Hudi table is only given columns: leave out {', '.join(others)}, or set evolve for the table"
        yield (*at, "evolve"), text, None
    if table.auto_create is not None:
        yield from _created((*at, "auto_create"), table.auto_create)


def _row_changes(at: Location, table: Table) -> Iterator[Problem]:
    if "write_mode" in table.model_fields_set:
        text = "Hudi brings changes into its tables itself, as hudi.type says; leave it out"
        yield (*at, "write_mode"), text, table.write_mode
    if table.stops_moved_keys:
        text = (
            "a Hudi table's rows are not looked at before a batch is published: set ignore if producers keep each key "
            "in its partition, or set order_by"
        )
        yield (*at, "on_moved_key"), text, table.on_moved_key
    if table.order_by is not None and "." in table.order_by and not table.events:
        text = "the ordering field of a Hudi table is a column, not a field within one"
        yield (*at, "order_by"), text, table.order_by


def _created(at: Location, wanted: AutoCreate) -> Iterator[Problem]:
    for name in sorted(wanted.model_fields_set & _NOT_CREATED.keys()):
        yield (*at, name), f"{_NOT_CREATED[name]}; leave it out", getattr(wanted, name)
    for index, term in enumerate(wanted.partition_by):
        if "(" in term:
            text = "a Hudi table is partitioned by columns as they are, such as day; name a column"
            yield (*at, "partition_by", index), text, term

"""What can't be said of a table together with its mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calve.sink_core.config.model import Location
from calve.sink_core.config.sink_source import Source
from calve.sink_core.config.tables import KAFKA, Table, TableDefaults

Problem = tuple[Location, str, object]

_ORIGINS = {
    "debezium": ("source.db", "source.schema", "source.table"),
    "dms": ("metadata.schema-name", "metadata.table-name"),
}
"""Where change events say of which source table they are, which is the same for all changes of a row."""


def row_changes(
    tables: Sequence[Table], defaults: TableDefaults, source: Source, commit_every: object
) -> Iterator[Problem]:
    """Where the tables' settings and their modes contradict each other, and what to say about it."""
    for number, table in enumerate(tables):
        at: Location = ("tables", number)
        if table.unavailable_value == "keep-old":
            yield from _keeping(table, at)
        if table.op_field and table.mode != "cdc":
            yield (*at, "op_field"), "goes with mode: cdc; other records don't say what became of a row", None
        if table.mode == "append":
            yield from _append(table, at)
            continue
        yield from _key(table, at, source)
        yield from _kept_from(table, at)
        if table.mode == "cdc":
            yield from _cdc(table, at)
        yield from _held_against_rows(table, at, defaults, commit_every)
        if "make_optional" in (defaults.evolve if table.evolve is None else table.evolve):
            text = f"make_optional could make the key optional; leave it out for mode: {table.mode}"
            yield (*at, "evolve"), text, None


def _held_against_rows(table: Table, at: Location, defaults: TableDefaults, commit_every: object) -> Iterator[Problem]:
    behind = commit_every != "batch"
    text = "needs commit.every: batch: each batch is held against all that was published before it"
    if table.order_by is not None:
        if behind and table.write_mode != "merge":
            yield (*at, "order_by"), text, None
        return
    if table.on_moved_key == "ignore":
        return
    if behind:
        yield (*at, "on_moved_key"), f"stop {text}; set ignore if producers keep each key in its partition", None
    if table.auto_create and not (defaults.kafka_column if table.kafka_column is None else table.kafka_column):
        text = "stop needs the column _kafka of a table that is created; set kafka_column: true, or ignore"
        yield (*at, "on_moved_key"), text, None


def _keeping(table: Table, at: Location) -> Iterator[Problem]:
    if table.mode != "cdc" or table.write_mode != "merge":
        text = "keep-old needs mode: cdc and write_mode: merge: only a merge looks at the row that is there"
        yield (*at, "unavailable_value"), f"{text}; or have the source send all values (REPLICA IDENTITY FULL)", None
    elif table.order_by is not None:
        text = "keep-old goes without order_by: a late change may have the value that a newer one was to keep"
        yield (*at, "unavailable_value"), text, None


def _append(table: Table, at: Location) -> Iterator[Problem]:
    soft = None if table.deletes == "hard" else table.deletes
    write = None if table.write_mode == "equality_deletes" else table.write_mode
    for name, given in (
        ("key", table.key),
        ("order_by", table.order_by),
        ("deletes", soft),
        ("write_mode", write),
    ):
        if given is not None:
            yield (*at, name), "goes with mode: upsert or cdc; an append keeps every record as a row", None


def _key(table: Table, at: Location, source: Source) -> Iterator[Problem]:
    if table.key == KAFKA and "none" in source.key_types(table.topics):
        yield (*at, "key"), "kafka needs keys; source.key, or that of a topic in source.formats, has type: none", None
    whole = sorted(source.value_types(table.topics) & {"string", "bytes"})
    if whole and table.mode == "cdc":
        yield (*at, "mode"), f"a value of type {whole[0]} says nothing of what became of a row", None
    elif whole and table.key != KAFKA:
        yield (*at, "mode"), f"a value of type {whole[0]} has no columns to tell rows by; set key: kafka", None
    if len(set(table.key_columns)) < len(table.key_columns):
        yield (*at, "key"), "names a column twice", None
    if table.auto_create and not (table.key or table.auto_create.identifier_fields):
        yield (*at, "key"), f"missing; a table that is created for mode: {table.mode} needs it", None


def _cdc(table: Table, at: Location) -> Iterator[Problem]:
    if table.op_field and table.envelope:
        yield (*at, "op_field"), f"stands in place of envelope, which is {table.envelope}; leave one out", None
    if table.order_by is None:
        return
    if table.deletes == "hard":
        text = "needs deletes: soft with mode: cdc: a row that is gone has no order to hold a late change against"
        yield (*at, "order_by"), text, None
    if table.wording == "debezium" and table.order_by.split(".")[0] in ("before", "after"):
        text = "names a field of the row; name one of the event that each of its kinds has, such as source.lsn"
        yield (*at, "order_by"), text, None


def _kept_from(table: Table, at: Location) -> Iterator[Problem]:
    """What could keep a row's last change from it."""
    if table.history == "replay":
        text = f"replay would put old records over newer ones; mode: {table.mode} goes with none"
        way = "for what came before, feed it by a pipeline of its own that begins at earliest"
        yield (*at, "history"), f"{text}; {way}", None
    by_origin = table.where is not None and table.where.field in _ORIGINS.get(table.events, ())
    if by_origin and table.key == KAFKA:
        text = "tells whose change an event is, and of a tombstone nobody knows that; name the columns of the key"
        yield (*at, "key"), f"kafka goes without where: its field {text}", None
    where = None if by_origin else table.where
    for name, given in (("where", where), ("name_from", table.name_from), ("transform", table.transform)):
        if given is not None:
            text = f"not available yet with mode: {table.mode}: a record that is left out may be a row's last change"
            known = _ORIGINS.get(table.events, ()) if name == "where" else ()
            more = f"; only by which table it is of: {', '.join(known)}" if known else ""
            yield (*at, name), f"{text}{more}", None

"""How records change the rows of a table, whatever its format: by which columns, in which words, held against what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema

from calve.sink_core.records.changes.envelopes import Debezium, Dms, Flat
from calve.sink_core.records.changes.events import ORDER_COLUMN, Envelope, Events
from calve.sink_core.records.changes.kafka_key import optional_key
from calve.sink_core.records.columns.kafka_column import has_kafka_column, without_kafka_column
from calve.sink_core.tables.batch import ToMerge

DELETED_COLUMN = "_is_deleted"
"""Of tables with soft deletes. Iceberg has reserved `_deleted`: Spark reads no table with a column of that name."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """By which columns (field ids) rows are told apart, and which one says what is newer: without `order` the offset
    does. `order_by` is its name. `sources` are topic and partition (field ids) that a row came from, if a key may come
    from no other. If `soft`, rows that go are kept, with a mark.
    Records are rows, or change events in the envelope that `events` names, or say by `op_field` what became of the row;
    truncates are left out if `ignores_truncate`. The key's columns are in the rows, or what the Kafka key is made of if
    `kafka_key`. If `merged` Spark brings them in, and then rows that lack a value keep the old one if `keeps_old`.
    """

    key: tuple[int, ...]
    order: int | None = None
    order_by: str = ""
    sources: tuple[int, ...] = ()
    soft: bool = False
    events: str = ""
    op_field: str = ""
    ignores_truncate: bool = False
    kafka_key: bool = False
    merged: bool = False
    keeps_old: bool = False

    @property
    def to_merge(self) -> ToMerge | None:
        """How changes are written, if to be merged."""
        return ToMerge(self.key, self.order, self.keeps_old, self.soft) if self.merged else None

    @property
    def held(self) -> tuple[int, ...]:
        """What changes are held against of the rows of their keys (field ids)."""
        return self.sources if self.order is None else (self.order,)

    @property
    def by_tombstones(self) -> bool:
        """Whether a record without a value says that a row goes. Where rows that are gone are kept an event has said
        more of them.
        """
        return not self.events or (self.kafka_key and not self.soft)


@dataclass(frozen=True, slots=True)
class ExistingRows:
    """Where a table's rows stand: field ids of `key` and of what changes are `held` against, an order, or topic and
    partition; and the names of these columns in the schema of the snapshot.
    """

    snapshot_id: int
    key: tuple[int, ...]
    held: tuple[int, ...]
    columns: tuple[str, ...]

    @property
    def by_source(self) -> bool:
        return len(self.held) > 1


def columns_read(schema: Schema, changes: RowChanges | None, *, table: str) -> Schema:
    """The columns of the rows in records: those of a table of which Calve has nothing to say itself."""
    if has_kafka_column(schema, table=table):
        schema = without_kafka_column(schema)
    if changes is None:
        return schema
    envelope = envelope_of(changes.events, changes.op_field)
    own = {DELETED_COLUMN} if changes.soft else set[str]()
    own |= {ORDER_COLUMN} if changes.order_by and envelope is not None and envelope.has_order else set()
    names = [field.name for field in schema.fields if field.field_id in changes.key]
    read = Schema(*(field for field in schema.fields if field.name not in own))
    return optional_key(read, names) if changes.kafka_key else read


def events_of(changes: RowChanges | None, columns: Schema, *, table: str) -> Events | None:
    """What reads the records of a table with these `columns_read`, if they are change events."""
    names = [field.name for field in columns.fields]
    envelope = envelope_of(changes.events, changes.op_field, names) if changes and changes.events else None
    if changes is None or envelope is None:
        return None
    return Events(
        envelope,
        columns,
        [columns.find_field(field_id).name for field_id in changes.key],
        table=table,
        order_by=changes.order_by,
        soft=changes.soft,
        ignores_truncate=changes.ignores_truncate,
        kafka_key=changes.kafka_key,
        keeps_old=changes.keeps_old,
    )


def envelope_of(events: str, op_field: str, columns: Collection[str] = ()) -> Envelope | None:
    """What reads the change events of a table with these columns; None if its records are rows."""
    if op_field:
        return Flat(op_field, columns)
    return _ENVELOPES[events]() if events else None


_ENVELOPES: Mapping[str, type[Debezium | Dms]] = {"debezium": Debezium, "dms": Dms}

"""Debezium's change events: which rows of a table come and go by them. Pure.

| op | row |
|---|---|
| `c`, `r`, `u` | `after` comes; if `before` has another key, the row of that one goes |
| `d` | the row with the key of `before` goes |
| `t` | a truncate: stops, or is left out |
| `m` | a logical message: left out |
| none | heartbeats, transactions and schema changes are left out, anything else is bad |
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from sink_core.changes.kafka_key import KEY, key_parts, keyless
from sink_core.changes.rows import NO_ORDER
from sink_core.decode.decoded import Decoded, sifted
from sink_core.errors import BadRecord, ConfigError

ORDER_COLUMN = "_order"
"""What a table keeps of the order of its rows' last changes, which the rows themselves don't tell."""

UNAVAILABLE = "__debezium_unavailable_value"
"""In place of a large value that a database doesn't repeat, as it did not change."""

_BEFORE, _AFTER, _OP, _STATUS, _DATABASE, _MOMENT = "before", "after", "op", "status", "databaseName", "ts_ms"
_COMES, _GOES, _TRUNCATE, _MESSAGE = ("c", "r", "u"), "d", "t", "m"

_NO_OP = "no op: not a change event of Debezium"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Meant:
    """What events do: `rows` come, or those of their keys go where `deletes` says so; `places` are their events'."""

    rows: pa.RecordBatch
    deletes: Bools
    places: npt.NDArray[np.int64]


class Debezium:
    """Reads the events of one table, whose rows have `columns` and are told apart by `key` (names among them).

    `order_by` is the path of the whole number in an event that says what is newer, if there is one. `soft`: all of
    `before` is read, as far as it is there. `ignores_truncate`: a truncate is left out. `kafka_key`: the key is that of
    `keyed_events`.
    """

    def __init__(
        self,
        columns: Schema,
        key: Sequence[str],
        *,
        table: str,
        order_by: str = "",
        soft: bool = False,
        ignores_truncate: bool = False,
        kafka_key: bool = False,
    ) -> None:
        self._key, self._table, self._ignores_truncate = key, table, ignores_truncate
        self._kafka_key = kafka_key
        self._path = order_by.split(".") if order_by else []
        wanted = [field for field in columns.fields if soft or field.name in key]
        before = StructType(*(field.model_copy(update={"required": False}) for field in wanted))
        self.schema = _envelope(before, columns.as_struct(), self._path, columns.highest_field_id + 1)

    def judge(self, decoded: Decoded) -> Decoded:
        """The events that change rows: of the others some are bad, and some are left out, neither good nor bad.

        Raises BadRecord for a truncate, unless these are left out.
        """
        events = decoded.columns
        bad, op = dict[int, str](), events.column(_OP)
        changes = _is_in(op, (*_COMES, _GOES))
        truncates, left_out = _is_in(op, (_TRUNCATE,)), _is_in(op, (_MESSAGE,)) | _says_nothing(events)
        if truncates.any() and not self._ignores_truncate:
            raise BadRecord(
                f"{self._table}: the source table was truncated, and on_truncate is stop; nothing was published",
                hint="set on_truncate: ignore to leave truncates out, and delete the rows by hand if they are to go",
            )
        left_out |= truncates
        for row in np.flatnonzero(~changes & ~left_out).tolist():
            found = op[row].as_py()
            bad[row] = _NO_OP if found is None else f"op {found!r} is none of Debezium's"
        for rows, message in self._faults(events):
            bad |= {row: message for row in np.flatnonzero(rows & changes).tolist() if row not in bad}
        if self._kafka_key:
            lacking = keyless(key_parts(events.column(KEY), self._key))
            bad |= {row: message for row, message in lacking.items() if changes[row] and row not in bad}
        return sifted(decoded, bad, np.flatnonzero(left_out).tolist())

    def meant(self, events: pa.RecordBatch) -> Meant:
        """What good events do."""
        gone = _is_in(events.column(_OP), (_GOES,))
        comes, goes = np.flatnonzero(~gone), np.flatnonzero(gone)
        moves = np.flatnonzero(~gone & self._other_key(events))
        parts = [
            self._keyed(_rows(events, _AFTER, comes), events, comes),
            self._keyed(_available(_rows(events, _BEFORE, goes)), events, goes),
            _available(_rows(events, _BEFORE, moves)),
        ]
        places = np.concatenate([comes, goes, moves])
        rows = pa.concat_tables(parts, promote_options="default")
        if self._path:
            rows = rows.append_column(ORDER_COLUMN, self._order(events).take(pa.array(places)))
        arrays = [column.combine_chunks() for column in rows.columns]
        return Meant(
            pa.RecordBatch.from_arrays(arrays, names=rows.column_names),
            np.repeat([False, True], [len(comes), len(goes) + len(moves)]),
            places,
        )

    def _faults(self, events: pa.RecordBatch) -> list[tuple[Bools, str]]:
        """Which changes are bad for which reason."""
        goes = _is_in(events.column(_OP), (_GOES,))
        before, after = events.column(_BEFORE), events.column(_AFTER)
        faults = [(~goes & _nulls(after), "a change without after: there is no row")]
        if not self._kafka_key:
            faults.append((goes & _nulls(before), "op d without before: nothing says which row goes"))
            key = ((name, _nulls(pc.struct_field(before, name))) for name in self._key)
            faults += [(goes & lacking, f"before.{name}: null, and by it rows are told apart") for name, lacking in key]
        for column in after.type:
            refused = _unavailable(pc.struct_field(after, column.name))
            if refused.any():
                text = f"after.{column.name}: {UNAVAILABLE}: the source did not send the value, which can't be kept"
                faults.append((~goes & refused, text))
        if self._path:
            faults.append((_nulls(self._order(events)), f"{'.'.join(self._path)}: {NO_ORDER}"))
        return faults

    def _other_key(self, events: pa.RecordBatch) -> Bools:
        """Where `before` has another key than what comes; where it has none nobody knows of another."""
        before, after = events.column(_BEFORE), events.column(KEY if self._kafka_key else _AFTER)
        other = np.zeros(len(events), np.bool_)
        known = np.ones(len(events), np.bool_)
        for name in self._key:
            old, new = pc.struct_field(before, name), pc.struct_field(after, name)
            known &= ~_nulls(old)
            other |= _true(pc.not_equal(old, new))
        return other & known

    def _keyed(self, rows: pa.Table, events: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.Table:
        """Rows of the events at these places, under the keys of the records if those count."""
        if not self._kafka_key:
            return rows
        for name, part in key_parts(events.column(KEY).take(pa.array(places)), self._key).items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, part)
        return rows

    def _order(self, events: pa.RecordBatch) -> pa.Array:
        column = events.column(self._path[0])
        return pc.struct_field(column, self._path[1:]) if len(self._path) > 1 else column


def row_columns(events: Schema, *, table: str) -> Schema:
    """The columns of the rows in events of a schema. Raises ConfigError if it has none."""
    found = {field.name: field.field_type for field in events.fields}
    for name in (_AFTER, _BEFORE):
        kind = found.get(name)
        if isinstance(kind, StructType) and kind.fields:
            return Schema(*kind.fields)
    raise ConfigError(
        f"table {table}: the records show no columns: they have no object under after or before",
        hint="name the columns under auto_create.columns, or is it no topic of Debezium's change events?",
    )


def with_order(columns: Schema) -> Schema:
    """Columns for a new table that keeps the order of its rows' last changes."""
    return Schema(*columns.fields, NestedField(columns.highest_field_id + 1, ORDER_COLUMN, LongType(), required=False))


def _envelope(before: StructType, after: StructType, order: Sequence[str], first_id: int) -> Schema:
    """Fields of both rows keep the ids of the table, by which they are found under other names."""
    texts, moment = [(_OP, StringType()), (_STATUS, StringType()), (_DATABASE, StringType())], (_MOMENT, LongType())
    kinds = [(_BEFORE, before), (_AFTER, after), *texts, moment]
    fields = [NestedField(first_id + at, name, kind, required=False) for at, (name, kind) in enumerate(kinds)]
    if order and order != [_MOMENT]:
        kind, next_id = LongType(), first_id + len(fields)
        for depth in range(len(order) - 1, 0, -1):
            kind = StructType(NestedField(next_id + depth, order[depth], kind, required=False))
        fields.append(NestedField(next_id, order[0], kind, required=False))
    return Schema(*fields)


def _says_nothing(events: pa.RecordBatch) -> Bools:
    """Heartbeats, which have a time only, beginnings and ends of transactions, and changes of a schema."""
    told = [_nulls(events.column(name)) for name in (_OP, _BEFORE, _AFTER)]
    known = [~_nulls(events.column(name)) for name in (_DATABASE, _MOMENT)]
    known.append(_is_in(events.column(_STATUS), ("BEGIN", "END")))
    return np.logical_and.reduce(told) & np.logical_or.reduce(known)


def _rows(events: pa.RecordBatch, side: str, places: npt.NDArray[np.int64]) -> pa.Table:
    struct = events.column(side).take(pa.array(places))
    return pa.Table.from_arrays(struct.flatten(), names=[field.name for field in struct.type])


def _available(rows: pa.Table) -> pa.Table:
    """With nulls where the source did not send a value."""
    for at, name in enumerate(rows.column_names):
        lacking = _unavailable(rows.column(at).combine_chunks())
        if lacking.any():
            kept = pc.if_else(pa.array(lacking), pa.scalar(None, rows.column(at).type), rows.column(at))
            rows = rows.set_column(at, name, kept)
    return rows


def _unavailable(column: pa.Array) -> Bools:
    """Where a text or bytes, or one in a list, stands in for a value that was not sent."""
    kind = column.type
    if pa.types.is_large_string(kind):
        return _true(pc.equal(column, pa.scalar(UNAVAILABLE, kind)))
    if pa.types.is_large_binary(kind):
        return _true(pc.equal(column, pa.scalar(UNAVAILABLE.encode(), kind)))
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_large_list(kind):
        elements = _unavailable(pc.list_flatten(column))
        found[pc.list_parent_indices(column).to_numpy()[elements]] = True
    return found


def _is_in(column: pa.Array, values: Sequence[str]) -> Bools:
    return _true(pc.is_in(column, value_set=pa.array(values, column.type)))


def _nulls(column: pa.Array) -> Bools:
    return _true(pc.is_null(column))


def _true(flags: pa.Array) -> Bools:
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)

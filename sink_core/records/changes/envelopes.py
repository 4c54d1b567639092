"""The envelopes that change events come in: Debezium's, that of AWS DMS, and rows with a field of their own. Pure.

Each class is an `events.Envelope`.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.sink_core.records.changes.events import Said, columns_under, optional
from calve.sink_core.records.columns.arrow import Bools, is_in, nulls

_BEFORE, _AFTER, _OP, _STATUS, _DATABASE, _MOMENT = "before", "after", "op", "status", "databaseName", "ts_ms"
_DATA, _IMAGE, _METADATA, _OPERATION, _KIND = "data", "before-image", "metadata", "operation", "record-type"
_CONTROL, _TRUNCATES = "control", ("truncate-table", "truncate")
MADE = ("c", "r", "i", "create", "read", "insert", "load")
CHANGED = ("u", "update")
GOES = ("d", "delete")
TRUNCATES = ("t", "truncate")


class Debezium:
    """Debezium's change events.

    | op | says |
    |---|---|
    | `c`, `r`, `u` | the row `after` comes |
    | `d` | the row `before` goes |
    | `t` | a truncate |
    | `m` | a logical message: left out |
    | none | heartbeats, transactions and schema changes are left out, anything else is bad |
    """

    new, gone, has_order = f"{_AFTER}.", f"{_BEFORE}.", True

    def fields(self, row: StructType, before: StructType, order: Sequence[str], first_id: int) -> list[NestedField]:
        texts, moment = [(_OP, StringType()), (_STATUS, StringType()), (_DATABASE, StringType())], (_MOMENT, LongType())
        kinds = [(_BEFORE, before), (_AFTER, row), *texts, moment]
        fields = [NestedField(first_id + at, name, kind, required=False) for at, (name, kind) in enumerate(kinds)]
        if order and list(order) != [_MOMENT]:
            kind, next_id = LongType(), first_id + len(fields)
            for depth in range(len(order) - 1, 0, -1):
                kind = StructType(NestedField(next_id + depth, order[depth], kind, required=False))
            fields.append(NestedField(next_id, order[0], kind, required=False))
        return fields

    def row_columns(self, events: Schema, *, table: str) -> Schema:
        return columns_under(events, (_AFTER, _BEFORE), table=table)

    def said(self, events: pa.RecordBatch) -> Said:
        op = events.column(_OP)
        left_out = is_in(op, ("m",)) | _says_nothing(events)
        comes, made = is_in(op, ("c", "r", "u")), is_in(op, ("c", "r"))
        return Said(comes, made, is_in(op, ("d",)), is_in(op, ("t",)), left_out)

    def puzzle(self, events: pa.RecordBatch, row: int) -> str:
        found = events.column(_OP)[row].as_py()
        return "no op: not a change event of Debezium" if found is None else f"op {found!r} is none of Debezium's"

    def rows(self, events: pa.RecordBatch, *, goes: bool = False) -> pa.StructArray:
        return events.column(_BEFORE if goes else _AFTER)

    def before(self, events: pa.RecordBatch) -> pa.StructArray | None:
        return events.column(_BEFORE)


def _says_nothing(events: pa.RecordBatch) -> Bools:
    """Heartbeats, which have a time only, beginnings and ends of transactions, and changes of a schema."""
    told = [nulls(events.column(name)) for name in (_OP, _BEFORE, _AFTER)]
    known = [~nulls(events.column(name)) for name in (_DATABASE, _MOMENT)]
    known.append(is_in(events.column(_STATUS), ("BEGIN", "END")))
    return np.logical_and.reduce(told) & np.logical_or.reduce(known)


class Dms:
    """Messages of AWS DMS to a stream: the row under `data`, what became of it under `metadata`.

    | metadata.operation | says |
    |---|---|
    | `load`, `insert`, `update` | the row `data` comes; `before-image`, if DMS sends it, is the one before an update |
    | `delete` | the row `data` goes |
    | any of `record-type: control` | a table was created, changed or dropped: left out, but a truncate is one |
    """

    new, gone, has_order = f"{_DATA}.", f"{_DATA}.", False

    def fields(self, row: StructType, before: StructType, order: Sequence[str], first_id: int) -> list[NestedField]:  # noqa: ARG002 - the row has the order
        inner = [(_OPERATION, StringType()), (_KIND, StringType())]
        metadata = StructType(*(NestedField(first_id + 3 + at, *of, required=False) for at, of in enumerate(inner)))
        # A row that goes may lack what is required of one that comes.
        kinds = [(_DATA, optional(row)), (_IMAGE, before), (_METADATA, metadata)]
        return [NestedField(first_id + at, name, kind, required=False) for at, (name, kind) in enumerate(kinds)]

    def row_columns(self, events: Schema, *, table: str) -> Schema:
        return columns_under(events, (_DATA,), table=table)

    def said(self, events: pa.RecordBatch) -> Said:
        operation, kind = self._told(events)
        control, truncates = is_in(kind, (_CONTROL,)), is_in(operation, _TRUNCATES)
        made = is_in(operation, ("load", "insert"))
        comes, goes = made | is_in(operation, ("update",)), is_in(operation, ("delete",))
        return Said(comes & ~control, made, goes & ~control, truncates, control & ~truncates)

    def puzzle(self, events: pa.RecordBatch, row: int) -> str:
        found = self._told(events)[0][row].as_py()
        if found is None:
            return f"no {_METADATA}.{_OPERATION}: not a message of DMS"
        return f"{_METADATA}.{_OPERATION} {found!r} is none of DMS's"

    def rows(self, events: pa.RecordBatch, *, goes: bool = False) -> pa.StructArray:  # noqa: ARG002 - both are there
        return events.column(_DATA)

    def before(self, events: pa.RecordBatch) -> pa.StructArray | None:
        return events.column(_IMAGE)

    def _told(self, events: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        metadata = events.column(_METADATA)
        return pc.struct_field(metadata, _OPERATION), pc.struct_field(metadata, _KIND)


class Flat:
    """Records that are rows, with a field that says what became of them.

    The words are those of DMS's files, of Debezium's flattened events and of others, in any case. `op_field` says what
    became of the row; it is one of the table's `columns` only if that has it.
    """

    new, gone, has_order = "", "", False

    def __init__(self, op_field: str, columns: Collection[str] = ()) -> None:
        self._op, self._columns = op_field, list(columns)

    def fields(self, row: StructType, before: StructType, order: Sequence[str], first_id: int) -> list[NestedField]:  # noqa: ARG002 - the row is all there is
        # A row that goes may lack what is required of one that comes.
        own = optional(row).fields
        op = NestedField(first_id, self._op, StringType(), required=False)
        return [*own, *([] if self._op in self._columns else [op])]

    def row_columns(self, events: Schema, *, table: str) -> Schema:  # noqa: ARG002 - there always are some
        return Schema(*(field for field in events.fields if field.name != self._op))

    def said(self, events: pa.RecordBatch) -> Said:
        op = pc.utf8_lower(events.column(self._op))
        made, changed, goes, truncates = (is_in(op, words) for words in (MADE, CHANGED, GOES, TRUNCATES))
        nothing: Bools = made & goes
        return Said(made | changed, made, goes, truncates, nothing)

    def puzzle(self, events: pa.RecordBatch, row: int) -> str:
        found = events.column(self._op)[row].as_py()
        if found is None:
            return f"{self._op}: missing or null: nothing says what became of the row"
        return f"{self._op}: {found!r} says nothing known of what became of the row"

    def rows(self, events: pa.RecordBatch, *, goes: bool = False) -> pa.StructArray:  # noqa: ARG002 - both are the record
        arrays = [events.column(name) for name in self._columns]
        return pa.StructArray.from_arrays(arrays, names=self._columns)

    def before(self, events: pa.RecordBatch) -> pa.StructArray | None:  # noqa: ARG002 - records don't tell
        return None

"""Debezium's change events. Pure.

| op | says |
|---|---|
| `c`, `r`, `u` | the row `after` comes |
| `d` | the row `before` goes |
| `t` | a truncate |
| `m` | a logical message: left out |
| none | heartbeats, transactions and schema changes are left out, anything else is bad |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.sink_core.changes.events import Said, columns_under
from calve.sink_core.changes.flags import Bools, is_in, nulls

_BEFORE, _AFTER, _OP, _STATUS, _DATABASE, _MOMENT = "before", "after", "op", "status", "databaseName", "ts_ms"


class Debezium:
    """As `Envelope`."""

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

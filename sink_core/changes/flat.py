"""Records that are rows, with a field that says what became of them. Pure.

The words are those of DMS's files, of Debezium's flattened events and of others, in any case.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from calve.sink_core.changes.events import Said, optional
from calve.sink_core.changes.flags import Bools, is_in

MADE = ("c", "r", "i", "create", "read", "insert", "load")
CHANGED = ("u", "update")
GOES = ("d", "delete")
TRUNCATES = ("t", "truncate")


class Flat:
    """As `Envelope`. `op_field` says what became of the row; it is one of the table's `columns` only if that has it."""

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

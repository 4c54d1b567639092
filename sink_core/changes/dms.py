"""Messages of AWS DMS to a stream: the row under `data`, what became of it under `metadata`. Pure.

| metadata.operation | says |
|---|---|
| `load`, `insert`, `update` | the row `data` comes; `before-image`, if DMS sends it, is the one before an update |
| `delete` | the row `data` goes |
| any of `record-type: control` | a table was created, changed or dropped: left out, but a truncate is one |
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from calve.sink_core.changes.events import Said, columns_under, optional
from calve.sink_core.changes.flags import is_in

_DATA, _BEFORE, _METADATA, _OPERATION, _KIND = "data", "before-image", "metadata", "operation", "record-type"
_CONTROL, _TRUNCATES = "control", ("truncate-table", "truncate")


class Dms:
    """As `Envelope`."""

    new, gone, has_order = f"{_DATA}.", f"{_DATA}.", False

    def fields(self, row: StructType, before: StructType, order: Sequence[str], first_id: int) -> list[NestedField]:  # noqa: ARG002 - the row has the order
        inner = [(_OPERATION, StringType()), (_KIND, StringType())]
        metadata = StructType(*(NestedField(first_id + 3 + at, *of, required=False) for at, of in enumerate(inner)))
        # A row that goes may lack what is required of one that comes.
        kinds = [(_DATA, optional(row)), (_BEFORE, before), (_METADATA, metadata)]
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
        return events.column(_BEFORE)

    def _told(self, events: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        metadata = events.column(_METADATA)
        return pc.struct_field(metadata, _OPERATION), pc.struct_field(metadata, _KIND)

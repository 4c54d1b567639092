"""Values that a change event does not have: a database doesn't repeat large ones that did not change. Pure.

Debezium puts its placeholder in their place. A change that is to be merged into its table says `KEEP` there, if the row
of its key was there before: an earlier change, or the table, has the value. Where none has, the placeholder is back.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BinaryType, IcebergType, ListType, StringType

from calve.sink_core.records.columns.arrow import Bools, true

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder."""

KEEP = "\0calve:keep-old"
"""In files that are to be merged, and nowhere else. No text of PostgreSQL has a zero in it."""


def can_keep(kind: IcebergType) -> bool:
    """Whether a column of this type may say that its value is to be kept: text, bytes, and lists of these."""
    element = kind.element_type if isinstance(kind, ListType) else kind
    return isinstance(element, StringType | BinaryType)


def stands_in(column: pa.Array | pa.ChunkedArray, marker: str) -> Bools:
    """Where a text or bytes, or one in a list or a struct, is the marker."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_large_string(kind):
        return true(pc.equal(column, pa.scalar(marker, kind)))
    if pa.types.is_large_binary(kind):
        return true(pc.equal(column, pa.scalar(marker.encode(), kind)))
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_large_list(kind):
        elements = stands_in(pc.list_flatten(column), marker)
        found[pc.list_parent_indices(column).to_numpy()[elements]] = True
    if pa.types.is_struct(kind):
        for part in column.flatten():
            found |= stands_in(part, marker)
    return found


def with_marker(column: pa.ChunkedArray, marker: str | None, rows: Bools) -> pa.ChunkedArray:
    """The column with the marker, or null, in these rows."""
    if not rows.any():
        return column
    value = None if marker is None else _as(marker, column.type)
    return pc.if_else(pa.array(rows), pa.scalar(value, column.type), column)


def _as(marker: str, kind: pa.DataType) -> str | bytes | list[str] | list[bytes]:
    if pa.types.is_large_list(kind):
        return [marker.encode()] if pa.types.is_large_binary(kind.value_type) else [marker]
    return marker.encode() if pa.types.is_large_binary(kind) else marker

"""What a table has of keys and their order: changes are held against it, so that a late one is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from sink_core.config.problems import nearest
from sink_core.errors import TableUnusable
from sink_core.tables.arrow import arrow_schema

ORDER = "calve:order"
"""The last column of standing rows; before it come those of the key."""

_ORDERED = (IntegerType, LongType, DecimalType, DateType, TimestampType, TimestamptzType)
# Those that Spark hands to Python as they are.
_KEYS = (*_ORDERED, BooleanType, StringType, BinaryType, FixedType)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a table's rows stand: field ids of `key` and `order`, and the names of these columns in the schema of the
    snapshot.
    """

    snapshot_id: int
    key: tuple[int, ...]
    order: int
    columns: tuple[str, ...]


def order_of(metadata: TableMetadata, path: str, key: Sequence[int], *, table: str) -> int:
    """Field id of the column at `path` by which changes are in order. Raises TableUnusable for one that can't be that,
    and for keys that can't be looked up.
    """
    schema = metadata.schema()
    try:
        field = schema.find_field(path)
    except ValueError:
        raise TableUnusable(
            f"{table}: order_by {path} is no column of the table; {nearest(path, schema.column_names)}",
            hint="name a column that the table has: what is newer must be known of its rows too",
        ) from None
    parts = path.split(".")
    within = [schema.find_type(".".join(parts[:depth])) for depth in range(1, len(parts))]
    if not isinstance(field.field_type, _ORDERED) or not all(isinstance(kind, StructType) for kind in within):
        raise TableUnusable(
            f"{table}: order_by {path} is {field.field_type}, or within a list or map, by which changes have no order",
            hint="name a column of type int, long, decimal, date, timestamp or timestamptz",
        )
    for field_id in key:
        kind = schema.find_type(field_id)
        if not isinstance(kind, _KEYS):
            raise TableUnusable(
                f"{table}: key {schema.find_column_name(field_id)} is {kind}, whose rows order_by can't look up",
                hint="leave order_by out, or name key columns of other types than uuid and time",
            )
    return field.field_id


def standing_of(metadata: TableMetadata, key: Sequence[int], order: int) -> Standing | None:
    """Where the rows of the head stand; None if there is none that has an order."""
    head = metadata.current_snapshot()
    if head is None:
        return None
    # A snapshot is read by the schema that it was made with. What that lacks its rows lack.
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    schema = schemas.get(metadata.current_schema_id if head.schema_id is None else head.schema_id, metadata.schema())
    names = [schema.find_column_name(field_id) for field_id in (*key, order)]
    found = tuple(name for name in names if name is not None)
    return Standing(head.snapshot_id, tuple(key), order, found) if len(found) == len(names) else None


def standing_schema(standing: Standing, schema: Schema) -> pa.Schema:
    """Of rows that stand, as they are held against changes by a table's schema."""
    kinds = [_in_memory(schema.find_type(field_id)) for field_id in (*standing.key, standing.order)]
    names = [*(f"key{i}" for i in range(len(standing.key))), ORDER]
    return pa.schema(list(zip(names, kinds, strict=True)))


def _in_memory(kind: IcebergType) -> pa.DataType:
    return arrow_schema(Schema(NestedField(1, "of", kind, required=False))).field(0).type

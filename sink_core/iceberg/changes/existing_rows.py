"""What a table has of keys, and of their order or the partition they came from: changes are held against it, so that
a late one is left out, and one of a key that came from another partition refused.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
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
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import TableUnusable
from calve.sink_core.records.columns.arrow import arrow_schema, column_of
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, has_kafka_column
from calve.sink_core.tables.pieces import Bounds
from calve.sink_core.tables.row_changes import ExistingRows

HELD = "calve:held"
"""The last column of existing rows, their order or source; before it come those of the key."""

_ORDERED = (IntegerType, LongType, DecimalType, DateType, TimestampType, TimestamptzType)
_KEYS = (*_ORDERED, BooleanType, StringType, BinaryType, FixedType, UUIDType)
_BOUNDED = (*_ORDERED, StringType)


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
            code=Code.NO_SUCH_COLUMN,
        ) from None
    parts = path.split(".")
    within = [schema.find_type(".".join(parts[:depth])) for depth in range(1, len(parts))]
    if not isinstance(field.field_type, _ORDERED) or not all(isinstance(kind, StructType) for kind in within):
        raise TableUnusable(
            f"{table}: order_by {path} is {field.field_type}, or within a list or map, by which changes have no order",
            hint="name a column of type int, long, decimal, date, timestamp or timestamptz",
            code=Code.ORDER_BY,
        )
    _check_key(schema, key, f"{table}: order_by", "leave it out")
    return field.field_id


def source_fields(metadata: TableMetadata, key: Sequence[int], *, table: str) -> tuple[int, int]:
    """Field ids of the topic and the partition that rows came from. Raises TableUnusable for a table that doesn't keep
    them, and for keys that can't be looked up.
    """
    schema = metadata.schema()
    if not has_kafka_column(schema, table=table):
        raise TableUnusable(
            f"{table}: on_moved_key is stop, and the table has no column {KAFKA_COLUMN} to tell where rows come from",
            hint="set on_moved_key: ignore; or add the column, and rows that are written from then on are looked at",
            code=Code.NO_ORIGIN,
        )
    _check_key(schema, key, f"{table}: on_moved_key", "set it to ignore")
    topic, partition = (schema.find_field(f"{KAFKA_COLUMN}.{part}").field_id for part in ("topic", "partition"))
    return topic, partition


def _check_key(schema: Schema, key: Sequence[int], wanted_by: str, without: str) -> None:
    for field_id in key:
        kind = schema.find_type(field_id)
        if not isinstance(kind, _KEYS):
            raise TableUnusable(
                f"{wanted_by} can't look rows up by key {schema.find_column_name(field_id)}, which is {kind}",
                hint=f"{without}, or name key columns of other types than time",
                code=Code.TIME_KEY,
            )


def existing_rows_of(metadata: TableMetadata, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:
    """Where the rows of the head stand; None if there is none that changes could be held against."""
    head = metadata.current_snapshot()
    if head is None:
        return None
    # A snapshot is read by the schema that it was made with. What that lacks its rows lack.
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    schema = schemas.get(metadata.current_schema_id if head.schema_id is None else head.schema_id, metadata.schema())
    names = [schema.find_column_name(field_id) for field_id in (*key, *held)]
    found = tuple(name for name in names if name is not None)
    return ExistingRows(head.snapshot_id, tuple(key), tuple(held), found) if len(found) == len(names) else None


def existing_rows_schema(existing: ExistingRows, schema: Schema) -> pa.Schema:
    """Of rows that stand, as they are held against changes by a table's schema."""
    kinds = [_in_memory(schema.find_type(field_id)) for field_id in existing.key]
    held = pa.int64() if existing.by_source else _in_memory(schema.find_type(existing.held[0]))
    names = [f"key{i}" for i in range(len(kinds))]
    return pa.schema([*zip(names, kinds, strict=True), (HELD, held)])


def bounds_of(changes: pa.Table, key: Sequence[int], schema: Schema) -> Bounds | None:
    """What the first column of the `key` (field ids) lies between among changes; None where that is of no use."""
    if not len(changes) or not isinstance(schema.find_type(key[0]), _BOUNDED):
        return None
    least, greatest = pc.min_max(column_of(changes, key[0], schema)).as_py().values()
    return least, greatest


def all_bounds(parts: Iterable[Bounds | None]) -> Bounds | None:
    """What all lie between; None if of one nothing is known, or if readers may order texts in another way."""
    found = list(parts)
    known = [part for part in found if part is not None]
    if len(known) < len(found) or not known:
        return None
    bounds = min(least for least, _ in known), max(greatest for _, greatest in known)
    # Java compares texts by UTF-16, which from here on is another order than that of UTF-8.
    texts = "".join(bound for bound in bounds if isinstance(bound, str))
    return None if max(texts, default="") >= "\ud800" else bounds


def _in_memory(kind: IcebergType) -> pa.DataType:
    return arrow_schema(Schema(NestedField(1, "of", kind, required=False))).field(0).type

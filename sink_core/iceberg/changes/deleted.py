"""The column `_is_deleted` of tables with soft deletes: whether the row's thing is gone."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BooleanType, NestedField

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.tables.row_changes import DELETED_COLUMN


def with_deleted(columns: Schema) -> Schema:
    """Columns for a new table with soft deletes: a row that is gone may have none of the others."""
    optional = [field.model_copy(update={"required": False}) for field in columns.fields]
    deleted = NestedField(columns.highest_field_id + 1, DELETED_COLUMN, BooleanType(), required=False)
    return Schema(*optional, deleted)


def check_deleted(metadata: TableMetadata, key: Sequence[int], *, table: str) -> None:
    """Raise TableUnusable for a table that can't keep a row of which only the `key` (field ids) is known."""
    fields = metadata.schema().fields
    found = next((field for field in fields if field.name == DELETED_COLUMN), None)
    if found is None or not isinstance(found.field_type, BooleanType):
        has = "has no column" if found is None else f"has {found.field_type} for"
        raise TableUnusable(
            f"{table}: deletes is soft, and the table {has} {DELETED_COLUMN}",
            hint=f"add it, in Spark: ALTER TABLE {table} ADD COLUMN {DELETED_COLUMN} boolean; or set deletes: hard",
            code=Code.SOFT_DELETES,
        )
    check_optional(metadata, key, table=table, deletes="soft")


def check_optional(metadata: TableMetadata, key: Sequence[int], *, table: str, deletes: str) -> None:
    """Raise TableUnusable for a table with required columns beside its `key` (field ids)."""
    known = {DELETED_COLUMN, KAFKA_COLUMN}
    fields = metadata.schema().fields
    required = [f.name for f in fields if f.required and f.field_id not in key and f.name not in known]
    if required:
        raise TableUnusable(
            f"{table}: deletes is {deletes}, and column {required[0]} is required, which a deleted row may not have",
            hint=f"make it optional, in Spark: ALTER TABLE {table} ALTER COLUMN {required[0]} DROP NOT NULL",
            code=Code.SOFT_DELETES,
        )

"""How records change the rows of a table, by what its pipeline file and its metadata say."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.changes.deleted import check_deleted
from calve.sink_core.iceberg.changes.equality import key_of
from calve.sink_core.iceberg.changes.existing_rows import order_of, source_fields
from calve.sink_core.iceberg.changes.merging import check_mergeable
from calve.sink_core.records.changes.events import ORDER_COLUMN
from calve.sink_core.records.changes.kafka_key import check_key_types, key_columns
from calve.sink_core.tables.row_changes import RowChanges, envelope_of


def row_changes_of(metadata: TableMetadata, settings: TableSettings) -> RowChanges | None:
    """None for a table that takes no row changes. Raises TableUnusable for one that can't take those of its mode."""
    if not settings.changes_rows:
        return None
    names = [field.name for field in key_columns(settings.kafka_key).fields] if settings.kafka_key else settings.key
    key = key_of(metadata, names, table=settings.name)
    if settings.kafka_key:
        check_key_types(metadata.schema(), key, settings.kafka_key, table=settings.name)
    if settings.soft_deletes:
        check_deleted(metadata, key, table=settings.name)
    if settings.merged:
        check_mergeable(metadata.schema(), table=settings.name)
    by, envelope = settings.order_by, envelope_of(settings.events, settings.op_field)
    named = ORDER_COLUMN if envelope and envelope.has_order else by
    order = None if named is None or by is None else order_of(metadata, named, key, table=settings.name)
    stays = settings.stops_moved_keys
    if settings.op_field:
        _check_op(metadata, settings.op_field, table=settings.name)
    return RowChanges(
        key,
        order,
        by or "",
        source_fields(metadata, key, table=settings.name) if stays else (),
        soft=settings.soft_deletes,
        events=settings.events,
        op_field=settings.op_field,
        ignores_truncate=settings.ignores_truncate,
        kafka_key=bool(settings.kafka_key),
        merged=settings.merged,
        keeps_old=settings.keeps_old,
    )


def _check_op(metadata: TableMetadata, name: str, *, table: str) -> None:
    """Raise TableUnusable if the table has a column of that name which can't hold the words."""
    for field in metadata.schema().fields:
        if field.name == name and not isinstance(field.field_type, StringType):
            raise TableUnusable(
                f"{table}: op_field {name} is a column of type {field.field_type}, and what it says is text",
                hint="name the field that says what became of a row, or make the column a string",
                code=Code.OP_FIELD,
            )

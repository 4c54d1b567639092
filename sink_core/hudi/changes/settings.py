"""How records change the rows of a Hudi table: by its record key, and its ordering field if it has one.

Both are properties of the table, chosen when it is created: Hudi's readers and its compaction go by them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.changes.deleted import check_optional
from calve.sink_core.iceberg.changes.settings import row_changes_of
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.tables.row_changes import RowChanges

RECORD_KEY, ORDERING, MERGE_MODE = (
    "hoodie.table.recordkey.fields",
    "hoodie.table.ordering.fields",
    "hoodie.record.merge.mode",
)
BY_COMMIT, BY_EVENT = "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"
"""Hudi's ways to tell which of two versions of a row stays: that of the later commit, or of the larger order."""


def record_key(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that tell a table's rows apart; none for one that is appended to."""
    return _names(properties, RECORD_KEY)


def hudi_changes_of(
    metadata: TableMetadata, settings: TableSettings, properties: Mapping[str, str], *, marked: bool
) -> RowChanges | None:
    """As `row_changes_of`, of columns and properties of a Hudi table; `marked` says that it has the column by which
    Hudi's writers delete. Raises TableUnusable for a table of another key, order or mode too.
    """
    key = record_key(properties)
    if not settings.changes_rows:
        if key:
            text = f"{RECORD_KEY} is {', '.join(key)}, and mode is append, of which each record is a row"
            raise _unusable(settings, text, "set mode: upsert or cdc; or have Calve create a table of another name")
        return None
    if not key:
        text = f"mode is {settings.mode}, and {RECORD_KEY} is unset: its rows are told by their Kafka positions"
        raise _unusable(settings, text, "have Calve create a table of another name")
    if settings.key and set(settings.key) != set(key):
        raise _other(settings, "key", settings.key, RECORD_KEY, key)
    named = settings if settings.key or settings.kafka_key else replace(settings, key=key)
    changes = row_changes_of(metadata, named)
    assert changes is not None
    schema = metadata.schema()
    given = tuple(schema.find_field(field_id).name for field_id in changes.key)
    if set(given) != set(key):
        raise _other(settings, "key", given, RECORD_KEY, key)
    order = () if changes.order is None else (schema.find_column_name(changes.order) or "",)
    if order != (ordering := _names(properties, ORDERING)):
        raise _other(settings, "order_by", order, ORDERING, ordering)
    mode, wanted = properties.get(MERGE_MODE, ""), BY_EVENT if order else BY_COMMIT
    if mode != wanted:
        raise _unusable(
            settings, f"{MERGE_MODE} is {mode}; Calve takes {wanted}", "have Calve create a table of another name"
        )
    if not settings.soft_deletes:
        if not marked:
            text = "deletes is hard, and the table has no column _hoodie_is_deleted, by which Hudi's writers delete"
            raise _unusable(settings, text, "set deletes: soft; or have Calve create a table of another name")
        check_optional(metadata, changes.key, table=settings.name, deletes="hard")
    return changes


def _names(properties: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, properties.get(name, "").split(",")))


def _other(
    settings: TableSettings, name: str, given: tuple[str, ...], of_table: str, found: tuple[str, ...]
) -> TableUnusable:
    return TableUnusable(
        f"{settings.name}: {name} is {', '.join(given) or 'unset'}, and the table's {of_table} "
        f"is {', '.join(found) or 'unset'}",
        hint=f"set {name} as the table has it; or have Calve create a table of another name, as Hudi changes none",
        code=Code.OTHER_HUDI_KEY,
    )


def _unusable(settings: TableSettings, why: str, hint: str) -> TableUnusable:
    return TableUnusable(f"{settings.name}: {why}", hint=hint, code=Code.FOREIGN_HUDI_TABLE)

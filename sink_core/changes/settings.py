"""How records change the rows of a table, by what its pipeline file and its metadata say."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from sink_core.changes.debezium import ORDER_COLUMN
from sink_core.changes.deleted import check_deleted
from sink_core.changes.equality import key_of
from sink_core.changes.kafka_key import check_key_types, key_columns
from sink_core.changes.standing import order_of
from sink_core.config.effective import TableSettings


@dataclass(frozen=True, slots=True)
class RowChanges:
    """By which columns (field ids) rows are told apart, and which one says what is newer: without `order` the offset
    does. `order_by` is its name. If `soft`, rows that go are kept, with a mark.
    Records are rows, or change events if `events`, of which truncates are left out if `ignores_truncate`. The key's
    columns are in the rows, or what the Kafka key is made of if `kafka_key`.
    """

    key: tuple[int, ...]
    order: int | None = None
    order_by: str = ""
    soft: bool = False
    events: bool = False
    ignores_truncate: bool = False
    kafka_key: bool = False

    @property
    def by_tombstones(self) -> bool:
        """Whether a record without a value says that a row goes. Where rows that are gone are kept an event has said
        more of them.
        """
        return not self.events or (self.kafka_key and not self.soft)


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
    by, events = settings.order_by, settings.reads_events
    # The rows in events don't say what is newer.
    order = None if by is None else order_of(metadata, ORDER_COLUMN if events else by, key, table=settings.name)
    return RowChanges(
        key,
        order,
        by or "",
        soft=settings.soft_deletes,
        events=events,
        ignores_truncate=settings.ignores_truncate,
        kafka_key=bool(settings.kafka_key),
    )

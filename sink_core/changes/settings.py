"""How records change the rows of a table, by what its pipeline file and its metadata say."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from sink_core.changes.debezium import ORDER_COLUMN
from sink_core.changes.deleted import check_deleted
from sink_core.changes.equality import key_of
from sink_core.changes.merging import check_mergeable
from sink_core.changes.standing import order_of
from sink_core.config.effective import TableSettings


@dataclass(frozen=True, slots=True)
class RowChanges:
    """By which columns (field ids) rows are told apart, and which one says what is newer: without `order` the offset
    does. `order_by` is its name. If `soft`, rows that go are kept, with a mark.
    Records are rows, or change events if `events`, of which truncates are left out if `ignores_truncate`.
    """

    key: tuple[int, ...]
    order: int | None = None
    order_by: str = ""
    soft: bool = False
    events: bool = False
    ignores_truncate: bool = False


def row_changes_of(metadata: TableMetadata, settings: TableSettings) -> RowChanges | None:
    """None for a table that takes no row changes. Raises TableUnusable for one that can't take those of its mode."""
    if not settings.changes_rows:
        return None
    key = key_of(metadata, settings.key, table=settings.name)
    if settings.soft_deletes:
        check_deleted(metadata, key, table=settings.name)
    by, events = settings.order_by, settings.reads_events
    if settings.merged:
        check_mergeable(metadata.schema(), table=settings.name)
    # The rows in events don't say what is newer.
    order = None if by is None else order_of(metadata, ORDER_COLUMN if events else by, key, table=settings.name)
    return RowChanges(key, order, by or "", settings.soft_deletes, events, settings.ignores_truncate)

"""A table as it is now, and what it says of itself without reading its rows: for whoever holds it as a handle."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.changes import settings as changes
from calve.sink_core.iceberg.commit.replace import has_deletes, head_manifests
from calve.sink_core.iceberg.commit.view import summary_of_head, totals_in, view_of
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.maintenance.expiry import calve_tags
from calve.sink_core.iceberg.write import usable
from calve.sink_core.tables.format.lake import Totals
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.history.view import TableView


def load_viewed(catalog: Catalog, name: str, *, tag: str, keys: SummaryKeys) -> tuple[Table, TableView] | None:
    """The table and its view, compared with nothing; None if the catalog has none of that name. Raises Unreachable or
    ConfigError.
    """
    table = load_if_there(catalog, name)
    return (table, view_of(table.metadata, table=name, tag=tag, keys=keys)) if table else None


def totals(table: Table, view: TableView) -> Totals:
    """Those of the head; zeros if there is none."""
    own = view.tagged.own if view.tagged else None
    return Totals(
        *totals_in(summary_of_head(table.metadata)),
        versions=len(view.snapshots),
        head=None if view.head is None else str(view.head),
        valid_through_ms=own.valid_through_ms if own else None,
    )


def has_delete_files(table: Table, name: str) -> bool:
    """Whether the head has any: its data files alone then don't tell its rows. Raises Unreachable."""
    with unreachable_as_ours(f"reading the manifests of {name}"):
        return has_deletes(head_manifests(table))


def feeding_pipelines(table: Table) -> frozenset[str]:
    """The tags of pipelines that write to the table."""
    return frozenset(calve_tags(table.metadata))


def check_usable(table: Table, name: str) -> None:
    """Raise TableUnusable, naming the property, for a table that Calve cannot write to."""
    usable.check_usable(table.metadata, table=name)


def row_changes_of(table: Table, settings: TableSettings) -> changes.RowChanges | None:
    """How records change rows of the table; None for one that takes no row changes. Raises TableUnusable for one that
    can't take those of its mode.
    """
    return changes.row_changes_of(table.metadata, settings)

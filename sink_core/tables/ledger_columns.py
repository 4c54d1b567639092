"""Columns that a ledger of an earlier version lacks."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from sink_core.tables.catalog import unreachable_as_ours
from sink_core.tables.internal import LEDGER_SCHEMA


def add_missing_columns(catalog: Catalog, name: str) -> Table:
    """The ledger with all of its columns. Raises Unreachable, also for a race that another process won."""
    with unreachable_as_ours(f"adding columns to {name}"):
        ledger = catalog.load_table(name)
        known = ledger.schema().column_names
        missing = [field for field in LEDGER_SCHEMA.fields if field.name not in known]
        if missing:
            with ledger.update_schema() as update:
                for field in missing:
                    update.add_column(field.name, field.field_type)
            ledger.refresh()
    return ledger

"""What was made for a while goes without a trace, and nothing else with it."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import Catalog

from calve.sink_core.iceberg.maintenance.dropping import drop_if_empty, drop_with_files, has_namespace
from tests.unit.iceberg.commit.on_catalog import SCHEMA, rows


def test_a_table_is_dropped_with_its_files(catalog: Catalog) -> None:
    catalog.create_namespace("db")
    table, other = (catalog.create_table(f"db.{name}", SCHEMA) for name in ("t", "t2"))
    table.append(rows(1))
    other.append(rows(1))
    drop_with_files(catalog, "db.t")
    drop_with_files(catalog, "db.t")
    assert catalog.list_tables("db") == [("db", "t2")]
    assert not Path(table.location().removeprefix("file://")).exists()
    assert len(catalog.load_table("db.t2").scan().to_arrow()) == 1


def test_a_namespace_is_dropped_once_it_is_empty(catalog: Catalog) -> None:
    drop_if_empty(catalog, "db")
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA)
    drop_if_empty(catalog, "db")
    assert has_namespace(catalog, "db")
    drop_with_files(catalog, "db.t")
    drop_if_empty(catalog, "db")
    assert not has_namespace(catalog, "db")

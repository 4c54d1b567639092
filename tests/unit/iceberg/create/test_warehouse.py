"""Where tables would be put is asked before there are any."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.create.warehouse import has_namespace, number_of_namespaces, warehouse_of
from tests.codes import raises


def test_a_table_that_exists_tells_the_place_of_others(catalog: Catalog, tmp_path: Path) -> None:
    place = f"file://{tmp_path}/elsewhere"
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(), location=place)
    found = [warehouse_of(catalog, names, named=False) for names in (["db.missing"], ["db.missing", "db.t"])]
    assert [each.location for each in found if each] == [catalog.properties["warehouse"], place]


def test_what_was_written_to_try_it_is_deleted(catalog: Catalog, catalog_dir: Path) -> None:
    warehouse = warehouse_of(catalog, [], named=False)
    assert warehouse is not None
    warehouse.check_writable()
    assert [path for path in (catalog_dir / "warehouse").rglob("*") if path.is_file()] == []


def test_a_warehouse_that_is_a_name_is_known_to_the_catalogs_service_only() -> None:
    with closing(InMemoryCatalog("lake", warehouse="main")) as catalog:
        assert warehouse_of(catalog, [], named=True) is None
        with raises(Code.CATALOG_SETTING, "lake", "warehouse", "main"):
            warehouse_of(catalog, [], named=False)


def test_namespaces_are_counted_and_looked_for(catalog: Catalog) -> None:
    assert number_of_namespaces(catalog) == 0
    catalog.create_namespace("db")
    assert number_of_namespaces(catalog) == 1
    assert has_namespace(catalog, "db")
    assert not has_namespace(catalog, "other")

"""Dropping what was made for a while: tables with all their files, and a namespace once it has none."""

from __future__ import annotations

import shutil

from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.maintenance.orphans import list_files


def drop_with_files(catalog: Catalog, name: str) -> None:
    """Drop a table, if it is there, with all below its location, which nobody else may have.

    Raises Unreachable or ConfigError.
    """
    if (table := load_if_there(catalog, name)) is not None:
        with unreachable_as_ours(f"dropping table {name}"):
            catalog.drop_table(name)
            _delete_files(table)


def has_namespace(catalog: Catalog, namespace: str) -> bool:
    """Raises Unreachable or ConfigError."""
    with unreachable_as_ours("looking for a namespace"):
        return catalog.namespace_exists(namespace)


def drop_if_empty(catalog: Catalog, namespace: str) -> None:
    """Drop a namespace, if it is there and has no table. Raises Unreachable or ConfigError."""
    with unreachable_as_ours(f"dropping namespace {namespace}"):
        if catalog.namespace_exists(namespace) and not catalog.list_tables(namespace):
            catalog.drop_namespace(namespace)


def _delete_files(table: Table) -> None:
    for file in list_files(table):
        table.io.delete(file.path)
    scheme, _, path = PyArrowFileIO.parse_location(table.location())
    if scheme == "file":
        shutil.rmtree(path, ignore_errors=True)

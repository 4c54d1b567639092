"""Where a catalog puts tables, asked before there are any: its namespaces, and whether its storage can be written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A place below which data files are put."""

    location: str
    io: FileIO

    def check_writable(self) -> None:
        """Write and delete a small file. Raises Unreachable or ConfigError."""
        probe = f"{self.location.rstrip('/')}/.calve-check-{uuid.uuid4()}"
        with unreachable_as_ours(f"writing a file below {self.location}"):
            with self.io.new_output(probe).create() as file:
                file.write(b"calve check")
            self.io.delete(probe)


def warehouse_of(catalog: Catalog, tables: Iterable[str], *, named: bool) -> Warehouse | None:
    """That of the first of `tables` that exists, else the catalog's own; None where this is only a name.

    Unless it may be `named`, as a catalog's service takes it, such a one raises ConfigError; also raises Unreachable.
    """
    for name in tables:
        table = load_if_there(catalog, name)
        if table is not None:
            return Warehouse(table.metadata.location, table.io)
    warehouse = str(catalog.properties.get("warehouse", ""))
    if "://" in warehouse or warehouse.startswith("/"):
        return Warehouse(warehouse, load_file_io(catalog.properties, warehouse))
    if named:
        return None
    raise ConfigError(
        f"catalog {catalog.name}: warehouse is {warehouse or 'not set'!r}, no place to put tables",
        hint="set `warehouse` under `catalog`, such as file:///data/warehouse or s3://bucket/warehouse",
        code=Code.CATALOG_SETTING,
    )


def number_of_namespaces(catalog: Catalog) -> int:
    """Of those at the top. Raises Unreachable, and ConfigError also for a user who may list none."""
    with unreachable_as_ours(f"listing the namespaces of catalog {catalog.name}"):
        return len(catalog.list_namespaces())


def has_namespace(catalog: Catalog, namespace: str) -> bool:
    """Raises Unreachable or ConfigError."""
    with unreachable_as_ours(f"asking catalog {catalog.name} for namespace {namespace}"):
        return catalog.namespace_exists(namespace)

"""Storage of a table, opened in the process that writes."""

from __future__ import annotations

from pyiceberg.io import FileIO, load_file_io

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.references import resolve
from calve.sink_core.tables.catalog import open_catalog, unreachable_as_ours

_VENDS_CREDENTIALS = "rest"


def open_io(catalog: CatalogSettings, table: str, location: str) -> FileIO:
    """The FileIO for `table`, whose files are at `location`.

    A REST catalog is asked for the table, since it may hand out credentials for just that one; otherwise the catalog's
    properties say it all and the catalog is not touched. Raises ConfigError and Unreachable.
    """
    if catalog.properties.get("type") == _VENDS_CREDENTIALS:
        with unreachable_as_ours(f"loading table {table}"):
            return open_catalog(catalog).load_table(table).io
    # Nested ones (`auth`) are a REST client's.
    flat = {k: v for k, v in resolve(catalog.properties).items() if not isinstance(v, dict | list)}
    return load_file_io({key: str(value) for key, value in flat.items()}, location)

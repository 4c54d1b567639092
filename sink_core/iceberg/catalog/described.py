"""What people are shown of a table: where it lies, its columns, some of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Description:
    """A table as it was loaded. `metadata_file` is the one that the catalog pointed to."""

    location: str
    format_version: int
    metadata_file: str
    schema: Schema


def described(table: Table) -> Description:
    return Description(table.location(), table.metadata.format_version, table.metadata_location, table.schema())


def rows_of(table: Table, columns: Sequence[str], *, limit: int | None = None) -> pa.Table:
    """Rows of the head, whichever come first, in these columns.

    Raises NotImplementedError or ValueError for what pyiceberg can't read, such as equality deletes, and as
    `unreachable_as_ours` does.
    """
    with unreachable_as_ours(f"reading {'.'.join(table.name())}"):
        return table.scan(selected_fields=tuple(columns), limit=limit).to_arrow()

"""An Iceberg table as a batch sees it: loaded, and compared with the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.sink_pipeline import TableSettings, TargetFileSize
from calve.sink_core.iceberg.catalog.metadata import without_history
from calve.sink_core.iceberg.changes.equality import with_spec_of_deletes
from calve.sink_core.iceberg.changes.existing_rows import existing_rows_of
from calve.sink_core.iceberg.changes.settings import row_changes_of
from calve.sink_core.iceberg.examine.table import totals
from calve.sink_core.iceberg.files.sort_order import distribution_of
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.format.target import IcebergTarget
from calve.sink_core.iceberg.read.rows import all_rows
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.iceberg.write.parquet import target_file_bytes
from calve.sink_core.iceberg.write.usable import check_usable
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.format.lake import Described, LoadedTable, Totals
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """As `LoadedTable`: `table` as its catalog gave it, `view` what its snapshots say."""

    name: str
    table: Table
    view: TableView
    catalog: Catalog
    settings: CatalogSettings

    @property
    def uuid(self) -> str:
        return self.view.uuid

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    @property
    def stored_offset(self) -> int:
        return self.view.stored_offset

    @property
    def totals(self) -> Totals:
        return totals(self.table, self.view)

    @property
    def described(self) -> Described:
        metadata, file = self.table.metadata, self.table.metadata_location
        return Described(self.table.location(), {"format version": metadata.format_version, "metadata file": file})

    def sample(self, columns: Sequence[str], rows: int) -> Sequence[Mapping[str, Any]]:
        return all_rows(self.table, columns, limit=rows).to_pylist()

    def check_usable(self) -> None:
        check_usable(self.table.metadata, table=self.name)

    def row_changes(self, settings: TableSettings) -> RowChanges | None:
        return row_changes_of(self.table.metadata, settings)

    def existing_rows(self, key: Sequence[int], held: Sequence[int]) -> ExistingRows | None:
        return existing_rows_of(self.table.metadata, key, held)

    def ready(self, settings: TableSettings) -> IcebergTable:
        changes = self.row_changes(settings)
        if changes is None:
            return self
        return replace(self, table=with_spec_of_deletes(self.catalog, self.table, changes.key))

    def target(self, size: TargetFileSize, changes: RowChanges | None = None, instant_ms: int = 0) -> IcebergTarget:  # noqa: ARG002 - has no timeline
        metadata = self.table.metadata
        # All changes of a key must come to one task.
        distribution = "hash" if changes else distribution_of(metadata)
        file_bytes = target_file_bytes(metadata, size)
        return IcebergTarget(self.name, without_history(metadata), self.settings, file_bytes, distribution)

    def output(
        self,
        batch_id: str,
        files: Sequence[WrittenFile],
        changes: int | None = None,
        to_merge: ToMerge | None = None,
    ) -> TableOutput:
        return output_of(batch_id, self.name, self.table, files, changes, to_merge)


def iceberg(table: LoadedTable) -> Table:
    """What the catalog gave, of a table that is always Iceberg's: the ledger, the dead letters."""
    assert isinstance(table, IcebergTable)
    return table.table

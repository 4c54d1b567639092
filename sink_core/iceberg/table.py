"""An Iceberg table as a batch sees it: loaded and compared with the log, and as its tasks write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.sink_pipeline import TableSettings, TargetFileSize
from calve.sink_core.iceberg.catalog.metadata import mapped_names, without_history
from calve.sink_core.iceberg.catalog.opening import open_io
from calve.sink_core.iceberg.changes.equality import with_spec_of_deletes
from calve.sink_core.iceberg.changes.existing_rows import existing_rows_of
from calve.sink_core.iceberg.changes.pieces import ChangePieces
from calve.sink_core.iceberg.changes.settings import row_changes_of
from calve.sink_core.iceberg.commit.view import TableView
from calve.sink_core.iceberg.files.sort_order import distribution_of
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.iceberg.write.parquet import target_file_bytes
from calve.sink_core.iceberg.write.spread import PieceWriter
from calve.sink_core.iceberg.write.usable import check_usable
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.batch import TableOutput, ToMerge
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format import ChangingWriter, Distribution, LoadedTable, RowWriter, Target
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges


@dataclass(frozen=True)
class IcebergTarget:
    """As `Target`. `text` is the JSON of the table's metadata without history, `target_file_size` in bytes. The
    catalog's settings are unresolved: each task reads its own environment.
    """

    name: str
    text: str
    catalog: CatalogSettings
    target_file_size: int
    distribution: Distribution = "none"

    @cached_property
    def metadata(self) -> TableMetadata:
        """Parsed when it is needed: a task gets records for few of many tables."""
        return TableMetadataUtil.parse_raw(self.text)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "metadata"}

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    @property
    def names(self) -> dict[int, list[str]]:
        return mapped_names(self.metadata)

    def writer(self, file_prefix: str, budget: Budget) -> RowWriter:
        io = open_io(self.catalog, self.name, self.metadata.location)
        return TableWriter(io, self.metadata, file_prefix, target_file_size=self.target_file_size, budget=budget)

    def change_writer(
        self, file_prefix: str, budget: Budget, changes: RowChanges, topics: Sequence[str]
    ) -> ChangingWriter:
        # Imported where it is needed: most tasks have no row changes.
        from calve.sink_core.iceberg.changes.writer import ChangeWriter

        return ChangeWriter(
            open_io(self.catalog, self.name, self.metadata.location),
            self.metadata,
            file_prefix,
            changes=changes,
            table=self.name,
            topics=topics,
            target_file_size=self.target_file_size,
            budget=budget,
        )

    def spreader(
        self, outbox: Outbox, number: int, budget: Budget, changes: RowChanges | None, *, bounded: bool
    ) -> RowWriter:
        if changes:
            return ChangePieces(self.schema, changes.key, outbox, number, budget, bounded=bounded)
        return PieceWriter(self.metadata, self.distribution, outbox, number, budget)


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

    def target(self, size: TargetFileSize, changes: RowChanges | None = None) -> IcebergTarget:
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


def iceberg_target(target: Target) -> IcebergTarget:
    """As tasks write it, of a table that is always Iceberg's."""
    assert isinstance(target, IcebergTarget)
    return target


def iceberg(table: LoadedTable) -> Table:
    """What the catalog gave, of a table that is always Iceberg's: the ledger, the dead letters."""
    assert isinstance(table, IcebergTable)
    return table.table

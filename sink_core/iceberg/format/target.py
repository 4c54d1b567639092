"""An Iceberg table as tasks write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog.metadata import mapped_names
from calve.sink_core.iceberg.catalog.opening import open_io
from calve.sink_core.iceberg.changes.pieces import ChangePieces
from calve.sink_core.iceberg.write.spread import PieceWriter
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.columns.column_names import ANY_COLUMN, ColumnRule
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format.target import ChangingWriter, Distribution, RowCheck, RowWriter, Target
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import RowChanges


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

    @property
    def column_rule(self) -> ColumnRule:
        return ANY_COLUMN

    def row_checks(self, key: Sequence[str]) -> Sequence[RowCheck]:  # noqa: ARG002 - it takes all
        return ()

    def spreader(
        self, outbox: Outbox, number: int, budget: Budget, changes: RowChanges | None, *, bounded: bool
    ) -> RowWriter:
        if changes:
            return ChangePieces(self.schema, changes.key, outbox, number, budget, bounded=bounded)
        return PieceWriter(self.metadata, self.distribution, outbox, number, budget)


def iceberg_target(target: Target) -> IcebergTarget:
    """As tasks write it, of a table that is always Iceberg's."""
    assert isinstance(target, IcebergTarget)
    return target

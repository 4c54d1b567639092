"""SQL catalogs, without reading again what was read or written here: metadata files never change.

The row that names a table's metadata file is asked for each time. The file is megabytes for a table with thousands of
snapshots, and pyiceberg would read it three times for a batch, and copy all of it for each commit.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

KNOWN = 64
"""Tables whose last metadata is kept; the one used longest ago makes room."""

T = TypeVar("T", bound=BaseModel)


class RememberingSqlCatalog(SqlCatalog):
    """pyiceberg's SQL catalog, which knows the metadata it has read or written last."""

    def __init__(self, name: str, **properties: str) -> None:
        # By place, one of each table.
        self._known: dict[str, TableMetadata] = {}
        self._place: dict[UUID, str] = {}
        super().__init__(name, **properties)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location or ""
        metadata = self._known.get(location)
        if metadata is None:
            table = super()._convert_orm_to_iceberg(orm_table)
            table.metadata = self._remember(location, table.metadata)
            return table
        self._remember(location, metadata)
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (a static method)
        super()._write_metadata(metadata, io, metadata_path)
        self._remember(metadata_path, metadata)

    def _remember(self, location: str, metadata: TableMetadata) -> TableMetadata:
        kept = metadata.model_copy(
            update={
                "snapshots": _as(_KeptSnapshot, metadata.snapshots),
                "snapshot_log": _as(_KeptLogEntry, metadata.snapshot_log),
            }
        )
        self._forget(metadata.table_uuid)
        self._known[location], self._place[metadata.table_uuid] = kept, location
        if len(self._place) > KNOWN:
            self._forget(next(iter(self._place)))
        return kept

    def _forget(self, table: UUID) -> None:
        if (location := self._place.pop(table, None)) is not None:
            self._known.pop(location, None)


class _Unchanging:
    """What a copy may share: of a deep copy of metadata nearly all is snapshots, which nobody changes."""

    def __deepcopy__(self, memo: object) -> _Unchanging:
        return self


class _KeptSnapshot(_Unchanging, Snapshot):
    pass


class _KeptLogEntry(_Unchanging, SnapshotLogEntry):
    pass


def _as(kind: type[T], models: list[T]) -> list[T]:
    return [model if isinstance(model, kind) else kind.model_construct(**dict(model)) for model in models]

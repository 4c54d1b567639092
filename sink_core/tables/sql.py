"""SQL catalogs, without reading again what was read or written here: metadata files never change.

The row that names a table's metadata file is asked for each time. The file is megabytes for a table with thousands of
snapshots, and pyiceberg would read it three times for a batch, and copy and format all of it for each commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, cast
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

_SNAPSHOTS = '"snapshots":'

T = TypeVar("T", bound=BaseModel)
FormattedSnapshots = dict[int, tuple[Snapshot, str]]
"""Snapshots by their ids, each with its JSON."""


class RememberingSqlCatalog(SqlCatalog):
    """pyiceberg's SQL catalog, which knows the metadata it has read or written last."""

    def __init__(self, name: str, **properties: str) -> None:
        # By place, one of each table.
        self._known: dict[str, TableMetadata] = {}
        self._place: dict[UUID, str] = {}
        self._formatted: dict[UUID, FormattedSnapshots] = {}
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
        kept = _kept(metadata)
        formatted = _Formatted(kept, self._formatted.get(metadata.table_uuid, {}))
        super()._write_metadata(cast(TableMetadata, formatted), io, metadata_path)
        self._remember(metadata_path, kept)
        self._formatted[metadata.table_uuid] = formatted.snapshots

    def _remember(self, location: str, metadata: TableMetadata) -> TableMetadata:
        kept = _kept(metadata)
        self._forget(metadata.table_uuid)
        self._known[location], self._place[metadata.table_uuid] = kept, location
        if len(self._place) > KNOWN:
            oldest = next(iter(self._place))
            self._forget(oldest)
            self._formatted.pop(oldest, None)
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


@dataclass(frozen=True, slots=True)
class _Formatted:
    """Metadata to be written. `before` is what was made of the table's snapshots for earlier files, `snapshots` what is
    for this one.
    """

    metadata: TableMetadata
    before: FormattedSnapshots
    snapshots: FormattedSnapshots = field(default_factory=dict[int, tuple[Snapshot, str]])

    def model_dump_json(self, *, exclude_none: bool) -> str:
        """Byte for byte what pyiceberg makes of the metadata."""
        if not exclude_none:
            return self.metadata.model_dump_json(exclude_none=False)
        bare = self.metadata.model_copy(update={"snapshots": []}).model_dump_json()
        # Within a string its quotes would be escaped, and no other key of this name has a list.
        before, _, after = bare.partition(f"{_SNAPSHOTS}[]")
        return f"{before}{_SNAPSHOTS}[{','.join(map(self._one, self.metadata.snapshots))}]{after}"

    def _one(self, snapshot: Snapshot) -> str:
        formatted, text = self.before.get(snapshot.snapshot_id, (None, ""))
        if formatted is not snapshot:
            text = snapshot.model_dump_json()
        self.snapshots[snapshot.snapshot_id] = snapshot, text
        return text


def _kept(metadata: TableMetadata) -> TableMetadata:
    snapshots, log = _as(_KeptSnapshot, metadata.snapshots), _as(_KeptLogEntry, metadata.snapshot_log)
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


def _as(kind: type[T], models: list[T]) -> list[T]:
    return [model if isinstance(model, kind) else kind.model_construct(**dict(model)) for model in models]

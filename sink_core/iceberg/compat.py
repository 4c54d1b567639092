"""Names that pyiceberg keeps to itself and Calve uses, each under a public one.

A release of pyiceberg may drop or change them without a word; `tests/unit/iceberg/test_compat.py` then says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile, ManifestWriterV2, _inherit_from_manifest  # pyright: ignore[reportPrivateUsage]
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import TableVersion
from pyiceberg.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import ArrowScan


def inherited(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """The entry with what it takes from its manifest's line in the manifest list.

    Own reading of manifests remembers their schemas, and these are the specification's rules for what it reads.
    """
    return _inherit_from_manifest(entry, manifest)


def delete_old_metadata(catalog: Catalog, io: FileIO, before: TableMetadata, after: TableMetadata) -> None:
    """Delete metadata files that the table has outgrown: pyiceberg does so for its own transactions only."""
    catalog._delete_old_metadata(io, before, after)  # pyright: ignore[reportPrivateUsage]


def staged(
    catalog: MetastoreCatalog,
    table: Table,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
) -> StagedTable:
    """The table as updated, in a metadata file that is not written yet. Raises CommitFailedException where it does not
    meet the requirements.
    """
    return catalog._update_and_stage_table(table, table.name(), requirements, updates)  # pyright: ignore[reportPrivateUsage]


def write_staged(catalog: MetastoreCatalog, table: StagedTable) -> None:
    """Write the metadata file of what was staged."""
    catalog._write_metadata(table.metadata, table.io, table.metadata_location)  # pyright: ignore[reportPrivateUsage]


def batches_of(scan: ArrowScan, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Rows of a file without deletes, batch by batch: the public method reads a whole file into memory."""
    return scan._record_batches_from_scan_tasks_and_deletes([task], {})  # pyright: ignore[reportPrivateUsage]


class OpenManifestWriter(ManifestWriterV2):
    """pyiceberg's writer of manifests, whose entries may have another schema, and whose header may say more."""

    def partition_type(self) -> StructType:
        return self._spec.partition_type(self._schema)

    def entry_schema(self, format_version: TableVersion) -> Schema:
        return super()._with_partition(format_version)

    def further_header(self) -> Mapping[str, str]:
        return {}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        return self.entry_schema(format_version)

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, **self.further_header()}

"""Names that pyiceberg keeps to itself and Calve uses, each under a public one.

A release of pyiceberg may drop or change them without a word; `tests/unit/iceberg/test_compat.py` then says which.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile, ManifestWriterV2, _inherit_from_manifest  # pyright: ignore[reportPrivateUsage]
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,  # pyright: ignore[reportPrivateUsage]
    _TableMetadataUpdateContext,  # pyright: ignore[reportPrivateUsage]
    _update_table_metadata_log,  # pyright: ignore[reportPrivateUsage]
)
from pyiceberg.typedef import TableVersion
from pyiceberg.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.fileformat import DataFileStatistics
    from pyiceberg.io.pyarrow import ArrowScan, StatisticsCollector

_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000
"""Halves of characters, which no text in UTF-8 has."""


def inherited(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """The entry with what it takes from its manifest's line in the manifest list.

    Own reading of manifests remembers their schemas, and these are the specification's rules for what it reads.
    """
    return _inherit_from_manifest(entry, manifest)


def parquet_statistics(
    of: pq.FileMetaData, columns: dict[int, StatisticsCollector], field_ids: dict[str, int]
) -> DataFileStatistics:
    """Metrics of a Parquet file, for its line in a manifest. The upper bound of a text that is cut may end in what
    follows U+D7FF, where pyiceberg has no character.
    """
    from pyiceberg.io import pyarrow

    pyarrow.truncate_upper_bound_text_string = upper_bound  # pyright: ignore[reportPrivateImportUsage]
    return pyarrow.data_file_statistics_from_parquet_metadata(of, columns, field_ids)


def upper_bound(text: str, most: int | None) -> str | None:
    """The text in so many characters, the last of them a larger one if it is cut; None if there is none larger."""
    found = text[:most]
    if found == text:
        return text
    for at in range(len(found) - 1, -1, -1):
        if (larger := ord(found[at]) + 1) <= sys.maxunicode:
            return found[:at] + chr(_AFTER_SURROGATES if larger == _SURROGATES else larger)
    return None


def delete_old_metadata(catalog: Catalog, io: FileIO, before: TableMetadata, after: TableMetadata) -> None:
    """Delete metadata files that the table has outgrown: pyiceberg does so for its own transactions only."""
    catalog._delete_old_metadata(io, before, after)  # pyright: ignore[reportPrivateUsage]


def staged(
    catalog: MetastoreCatalog,
    table: Table,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
    open_io: Callable[[Mapping[str, str], str], FileIO],
) -> StagedTable:
    """The table as updated, in a metadata file that is not written yet, and will be by what `open_io` makes of the
    table's properties and a location. Raises CommitFailedException where it does not meet the requirements.

    pyiceberg's own way copies each of the snapshots, which nobody changes: with thousands that is most of a commit.
    """
    before, context = table.metadata, _TableMetadataUpdateContext()
    for requirement in requirements:
        requirement.validate(before)
    after = before
    for change in updates:
        after = _apply_table_update(change, after, context)
    if context.has_changes():
        after = _update_table_metadata_log(after, table.metadata_location, before.last_updated_ms)
        if after.last_updated_ms == before.last_updated_ms:
            after = after.model_copy(update={"last_updated_ms": time.time_ns() // 1_000_000})
    if (after.schema(), after.spec(), after.sort_order()) != (before.schema(), before.spec(), before.sort_order()):
        after.spec().check_compatible(after.schema())
        after.sort_order().check_compatible(after.schema())
    version = catalog._parse_metadata_version(table.metadata_location) + 1  # pyright: ignore[reportPrivateUsage]
    place = load_location_provider(after.location, after.properties).new_table_metadata_file_location(version)
    return StagedTable(table.name(), after, place, open_io(after.properties, place), catalog)


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

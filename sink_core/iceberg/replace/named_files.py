"""Files that manifests name and that their table lacks by now: whether they still exist, and copies of them.

A manifest that an event names may be in no snapshot, and its files may be those of a table that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.table import Table

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.replace import head_manifests, paths_of
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.files.manifests import entries_of, write_manifest
from calve.sink_core.iceberg.read.rows import rows_named
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.batch import ManifestRef

_AT_ONCE = 65_536
"""Rows that are copied at a time."""


def files_gone(table: Table, manifests: Sequence[ManifestRef]) -> Iterator[str]:
    """Manifests that do not exist, and data files that those which do name in vain. Raises Unreachable."""
    with unreachable_as_ours(f"looking for files of {'.'.join(table.name())}"):
        for manifest in manifests:
            if not table.io.new_input(manifest.path).exists():
                yield manifest.path
                continue
            paths = (entry.data_file.file_path for entry in entries_of(table.io, manifest))
            yield from (path for path in paths if not table.io.new_input(path).exists())


def files_in_head(table: Table, manifests: Sequence[ManifestRef]) -> list[str]:
    """The files that the manifests name and that the head names as well, sorted. Raises Unreachable."""
    with unreachable_as_ours(f"reading metadata of {'.'.join(table.name())}"):
        head = head_manifests(table)
        named = {e.data_file.file_path for manifest in head for e in live_entries(table.io, manifest)}
        return sorted(named & paths_of(table.io, manifests)) if named else []


def copied(table: Table, manifests: Sequence[ManifestRef], file_prefix: str) -> list[ManifestRef]:
    """The rows of the files that the manifests name, written as files of the table, and the manifest that names these;
    none of none. Columns go by their names: the table may number them otherwise. Raises Unreachable, TableUnusable.
    """
    if not manifests:
        return []
    with unreachable_as_ours(f"writing files of {'.'.join(table.name())}"):
        writer, metadata = TableWriter(table.io, table.metadata, file_prefix), table.metadata
        for batch in rows_named(table, manifests, at_once=_AT_ONCE):
            writer.write(batch)
        path = table.location_provider().new_metadata_location(f"{file_prefix}.avro")
        return [write_manifest(table.io, metadata, metadata.default_spec_id, writer.close(), path)]

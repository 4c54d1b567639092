"""What a table is made of: the numbers shown before and after a task, and the files of its head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.commit.view import summary_of_head
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.maintenance.deletes import bounds_of, count_over, equality_deletes

DATA_FILES, DATA_BYTES, DELETE_FILES = "data_files", "data_bytes", "delete_files"
MANIFESTS, SNAPSHOTS, METADATA_BYTES = "manifests", "snapshots", "metadata_bytes"

_SUMMARY = {DATA_FILES: "total-data-files", DATA_BYTES: "total-files-size", DELETE_FILES: "total-delete-files"}


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the head. `partition` are its values as in the manifest, `added_ms` when it was committed; None
    if the snapshot that did so is expired. `deletes` are the files of equality deletes that readers match with it."""

    spec_id: int
    partition: tuple[object, ...]
    size: int
    added_ms: int | None
    deletes: int = 0


def shape(table: Table) -> dict[str, int]:
    """Numbers of the head and its metadata. `metadata_bytes`: metadata file, manifest list and manifests."""
    head = table.current_snapshot()
    summary = summary_of_head(table.metadata)
    manifests = head.manifests(table.io) if head else []
    sizes = [len(table.io.new_input(path)) for path in (table.metadata_location, head and head.manifest_list) if path]
    return {
        **{name: int(summary.get(key, "0")) for name, key in _SUMMARY.items()},
        MANIFESTS: len(manifests),
        SNAPSHOTS: len(table.metadata.snapshots),
        METADATA_BYTES: sum(sizes) + sum(manifest.manifest_length for manifest in manifests),
    }


def _values(partition: Record) -> tuple[object, ...]:
    return tuple(partition[i] for i in range(len(partition)))


def live_files(table: Table, *, count_deletes: int = 0) -> Iterator[LiveFile]:
    """The data files of the head, with their deletes counted up to `count_deletes`. Memory: one manifest, and bounds of
    the keys of each file of deletes.
    """
    head, schema = table.current_snapshot(), table.schema()
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    deletes = equality_deletes(table) if count_deletes else []
    keys = sorted({field_id for delete in deletes for field_id in delete.bounds})
    for manifest in head.manifests(table.io) if head else []:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in live_entries(table.io, manifest):
            file, values = entry.data_file, _values(entry.data_file.partition)
            added = committed.get(entry.snapshot_id) if entry.snapshot_id is not None else None
            over = count_over(
                deletes,
                sequence_number=entry.sequence_number or 0,
                partition=(manifest.partition_spec_id, values),
                bounds=bounds_of(file, schema, keys),
                at_most=count_deletes,
            )
            yield LiveFile(manifest.partition_spec_id, values, file.file_size_in_bytes, added, over)

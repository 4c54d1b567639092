"""What manifest lists and manifests name. A table that is fed often has thousands of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot

from calve.sink_core.iceberg.compat import inherited
from calve.sink_core.iceberg.files.known_schemas import AvroReader
from calve.sink_core.iceberg.files.requests import answers

_MANIFESTS = AvroReader[ManifestFile](
    MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION],
    {-1: ManifestFile, 508: PartitionFieldSummary},
    {517: ManifestContent},
)
_ENTRIES = AvroReader[ManifestEntry](
    MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
    {-1: ManifestEntry, 2: DataFile},
    {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)


def manifests_in(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """The manifests of a snapshot, none without one."""
    return list(_each_manifest(io, snapshot))


def _each_manifest(io: FileIO, snapshot: Snapshot | None) -> Iterator[ManifestFile]:
    if snapshot is not None and snapshot.manifest_list:
        yield from _MANIFESTS.read(*read_file(io, snapshot.manifest_list))


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of files that the manifest adds or keeps, with what they inherit from its line in the manifest list.
    Raises what reading a file that is gone or broken does.
    """
    return entries_read(manifest, *read_file(io, manifest.manifest_path))


def head_files(table: Table) -> list[FileScanTask]:
    """The data files of the head, each with the position deletes for it, as `table.scan().plan_files()` has them.
    Raises ValueError for equality deletes, which pyiceberg does not read.
    """
    return list(each_head_file(table))


def each_head_file(table: Table) -> Iterator[FileScanTask]:
    """As `head_files`, in the memory of a few manifests where there are no deletes."""
    io, head = table.io, table.current_snapshot()
    if any(manifest.content is ManifestContent.DELETES for manifest in _each_manifest(io, head)):
        yield from _AllFiles(table.metadata, io).plan_files(_each_manifest(io, head))
        return
    for entries in _entries_of_each(io, _each_manifest(io, head)):
        yield from (FileScanTask(entry.data_file) for entry in entries)


def read_file(io: FileIO, path: str) -> tuple[InputFile, bytes]:
    """A file and its bytes."""
    file = io.new_input(path)
    with file.open() as opened:
        return file, opened.read()


def entries_read(manifest: ManifestFile, file: InputFile, content: bytes) -> list[ManifestEntry]:
    """As `live_entries`, of a file that was read."""
    entries = _ENTRIES.read(file, content)
    return [inherited(entry, manifest) for entry in entries if entry.status is not ManifestEntryStatus.DELETED]


def _entries_of_each(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
    def read(manifest: ManifestFile) -> tuple[ManifestFile, InputFile, bytes]:
        return manifest, *read_file(io, manifest.manifest_path)

    for of_one in answers(read, manifests):
        yield entries_read(*of_one)


class _AllFiles(ManifestGroupPlanner):
    """Every file: nothing is left out by partitions or bounds."""

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        return _entries_of_each(self.io, manifests)

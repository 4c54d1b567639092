"""What manifests name. A table that is fed often has thousands of them, written in two or three schemas.

For each manifest pyiceberg works out how its Avro schema becomes that of entries, which takes seven times as long as
reading the one entry of a small batch. Here that is remembered by the text of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, Table

from calve.sink_core.iceberg.compat import inherited
from calve.sink_core.iceberg.files.requests import answers

_ENTRY = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
_TYPES: dict[int, Any] = {-1: ManifestEntry, 2: DataFile}
_ENUMS: dict[int, Any] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_SCHEMA = "avro.schema"
_SCHEMAS_KEPT = 64


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of files that the manifest adds or keeps, with what they inherit from its line in the manifest list.
    Raises what reading a file that is gone or broken does.
    """
    return _entries(manifest, *_read(io, manifest))


def head_files(table: Table) -> list[FileScanTask]:
    """The data files of the head, each with the position deletes for it, as `table.scan().plan_files()` has them.
    Raises ValueError for equality deletes, which pyiceberg does not read.
    """
    head = table.current_snapshot()
    return [*_AllFiles(table.metadata, table.io).plan_files(head.manifests(table.io))] if head else []


def _read(io: FileIO, manifest: ManifestFile) -> tuple[InputFile, bytes]:
    file = io.new_input(manifest.manifest_path)
    with file.open() as opened:
        return file, opened.read()


def _entries(manifest: ManifestFile, file: InputFile, content: bytes) -> list[ManifestEntry]:
    with _OfKnownSchema(file, content) as entries:
        return [inherited(entry, manifest) for entry in entries if entry.status is not ManifestEntryStatus.DELETED]


class _OfKnownSchema(AvroFile[ManifestEntry]):
    def __init__(self, file: InputFile, content: bytes) -> None:
        super().__init__(file, _ENTRY, _TYPES, _ENUMS)
        self._content = content

    def __enter__(self) -> _OfKnownSchema:
        self.decoder = new_decoder(self._content)
        self.header = _HEADER.read(self.decoder)
        self.reader = _reader_of(self.header.meta.get(_SCHEMA, ""))
        return self


@lru_cache(_SCHEMAS_KEPT)
def _reader_of(schema: str) -> Reader:
    """Raises ValueError for what is no schema."""
    return resolve_reader(AvroFileHeader(b"", {_SCHEMA: schema}, b"").get_schema(), _ENTRY, _TYPES, _ENUMS)


class _AllFiles(ManifestGroupPlanner):
    """Every file: nothing is left out by partitions or bounds."""

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        found = list(manifests)
        for manifest, content in zip(found, answers(partial(_read, self.io), found), strict=True):
            yield _entries(manifest, *content)

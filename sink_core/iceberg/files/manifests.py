"""Manifests of files that no snapshot names yet.

Their entries carry neither a snapshot id nor a sequence number: readers take both from the manifest list
(https://iceberg.apache.org/spec/#sequence-number-inheritance), so the commit that adds the manifest gives them.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Mapping, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError
from calve.sink_core.iceberg.compat import OpenManifestWriter
from calve.sink_core.iceberg.files.entries import entries_read, live_entries, read_file
from calve.sink_core.iceberg.files.written import WrittenFile, data_file
from calve.sink_core.tables.batch import ManifestRef, PartitionSummary

_NO_SNAPSHOT = -1
_REWRITTEN = re.compile(r"calve-(\d+)-without-.*\.(?:avro|parquet)")


class _ManifestWriter(OpenManifestWriter):
    file_fields: tuple[NestedField, ...] = ()
    """Of a file's description, in place of pyiceberg's own."""

    def entry_schema(self, format_version: TableVersion) -> Schema:
        # Partition values are optional in every manifest Iceberg writes: `void` makes nulls of a required column.
        fields = self.partition_type().fields
        optional = (NestedField(f.field_id, f.name, f.field_type, required=False) for f in fields)
        own = {field.field_id: field for field in self.file_fields}
        file_type = data_file_with_partition(StructType(*optional), format_version).fields
        file_type = StructType(*(own.get(field.field_id, field) for field in file_type))
        return manifest_entry_schema_with_data_file(format_version, file_type)


class _DeleteManifestWriter(_ManifestWriter):
    # Iceberg's specification has a list of int; pyiceberg's list of long makes Spark fail on every read.
    file_fields = (
        NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False),
    )

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def further_header(self) -> Mapping[str, str]:
        return {"content": "deletes"}


def write_manifest(
    io: FileIO, metadata: TableMetadata, spec_id: int, files: Sequence[WrittenFile], path: str
) -> ManifestRef:
    """Write a manifest of at least one file at `path`. All files must have been written under `spec_id`, and all hold
    rows or all equality deletes.
    """
    spec, schema = metadata.specs()[spec_id], metadata.schema()
    content = ManifestContent.DELETES if files[0].equality_ids else ManifestContent.DATA
    return write_manifest_of(
        io, metadata, spec_id, [data_file(file, spec, schema) for file in files], path, content=content
    )


def write_manifest_of(
    io: FileIO,
    metadata: TableMetadata,
    spec_id: int,
    files: Sequence[DataFile],
    path: str,
    *,
    content: ManifestContent = ManifestContent.DATA,
) -> ManifestRef:
    """As `write_manifest`, of files as manifests have them."""
    writer = _writer(io, metadata, spec_id, _NO_SNAPSHOT, path, content)
    with writer:
        for file in files:
            writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
    written = writer.to_manifest_file()
    with io.new_input(path).open() as stream:
        written_bytes = stream.read()
    return ManifestRef(
        path=path,
        length=len(written_bytes),
        sha256=hashlib.sha256(written_bytes).hexdigest(),
        content=int(content),
        spec_id=spec_id,
        files=len(files),
        rows=sum(file.record_count for file in files),
        data_bytes=sum(file.file_size_in_bytes for file in files),
        partitions=tuple(_summary(summary) for summary in written.partitions or ()),
    )


def rewritten_name(sequence_number: int) -> str:
    """The name of a manifest that is written again for the snapshot with `sequence_number`."""
    return f"{rewritten_prefix(sequence_number)}-{uuid.uuid4()}.avro"


def rewritten_prefix(sequence_number: int) -> str:
    """What the names of files begin with that a commit writes for the snapshot with `sequence_number`."""
    return f"calve-{sequence_number}-without"


def rewritten_for(name: str) -> int | None:
    """The sequence number in a name made by `rewritten_name` or with `rewritten_prefix`, None for any other."""
    found = _REWRITTEN.fullmatch(name)
    return int(found[1]) if found else None


def write_without(
    io: FileIO, metadata: TableMetadata, manifest: ManifestFile, gone: Collection[str], snapshot_id: int, path: str
) -> ManifestFile:
    """Write the manifest again, as part of the snapshot `snapshot_id`, with the files at the paths `gone` deleted.

    All others stay what they are: sequence numbers decide which deletes apply to a file.
    """
    writer = _writer(io, metadata, manifest.partition_spec_id, snapshot_id, path)
    with writer:
        for entry in live_entries(io, manifest):
            deleted = entry.data_file.file_path in gone
            again = ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED if deleted else ManifestEntryStatus.EXISTING,
                snapshot_id=snapshot_id if deleted else entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            writer.add_entry(again)
    return writer.to_manifest_file()


def _writer(
    io: FileIO,
    metadata: TableMetadata,
    spec_id: int,
    snapshot_id: int,
    path: str,
    content: ManifestContent = ManifestContent.DATA,
) -> _ManifestWriter:
    codec = metadata.properties.get(
        TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    )
    spec = metadata.specs()[spec_id]
    kind = _DeleteManifestWriter if content is ManifestContent.DELETES else _ManifestWriter
    return kind(spec, metadata.schema(), io.new_output(path), snapshot_id, codec)  # pyright: ignore[reportArgumentType]


def manifest_file(ref: ManifestRef, snapshot_id: int) -> ManifestFile:
    """The entry of the adding snapshot's manifest list, whose writer assigns the sequence number."""
    return ManifestFile.from_args(
        manifest_path=ref.path,
        manifest_length=ref.length,
        partition_spec_id=ref.spec_id,
        content=ManifestContent(ref.content),
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=UNASSIGNED_SEQ,
        added_snapshot_id=snapshot_id,
        added_files_count=ref.files,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=ref.rows,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[
            PartitionFieldSummary(p.contains_null, p.contains_nan, p.lower_bound, p.upper_bound) for p in ref.partitions
        ],
        key_metadata=None,
    )


def entries_of(io: FileIO, ref: ManifestRef) -> list[ManifestEntry]:
    """The entries of a manifest that may be in no snapshot yet, read as if it were in one."""
    return live_entries(io, manifest_file(ref, _NO_SNAPSHOT))


def published_entries(io: FileIO, ref: ManifestRef) -> list[ManifestEntry]:
    """The entries of a manifest that an event names. Raises ProtocolError for bytes that are not those it says."""
    file, content = read_file(io, ref.path)
    if (found := hashlib.sha256(content).hexdigest()) != ref.sha256 or len(content) != ref.length:
        raise ProtocolError(
            f"{ref.path}: published with {ref.length} bytes of SHA-256 {ref.sha256}, found {len(content)} of {found}",
            hint=Code.FOREIGN_FILES.explanation.remedy,
            code=Code.FOREIGN_FILES,
        )
    return entries_read(manifest_file(ref, _NO_SNAPSHOT), file, content)


def _summary(summary: PartitionFieldSummary) -> PartitionSummary:
    return PartitionSummary(summary.contains_null, summary.contains_nan, summary.lower_bound, summary.upper_bound)

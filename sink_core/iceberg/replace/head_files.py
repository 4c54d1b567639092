"""Data files of a table's head that may hold rows of given source offsets, and how others take their place.

A file is found by its metrics, written again without these rows by a task (`tasks`), and then named by manifests: those
of the files that leave, and those of the files with their other rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.replace import live_files, partitions_known
from calve.sink_core.iceberg.files.kafka_rows import may_hold, place_fields, runs_of
from calve.sink_core.iceberg.files.manifests import write_manifest_of
from calve.sink_core.iceberg.write.outputs import output_of
from calve.sink_core.iceberg.write.rewrite import Rewritten
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.range_parts import Replaces


@dataclass(frozen=True, slots=True)
class HeadFile:
    """A data file that the head names, with its `rows` and its `size` in bytes; `file` is what manifests say of it.

    Unless `writable` a column is gone that its partition spec is made of: it can't be written again as it lies.
    """

    path: str
    spec_id: int
    rows: int
    size: int
    writable: bool
    file: DataFile


def files_holding(
    table: Table, name: str, ranges: Iterable[OffsetRange], *, struct: str | None
) -> tuple[HeadFile, ...]:
    """Files of the head that may hold rows of the ranges. A row's place is told by the column `struct`, or by the
    columns topic, partition and offset. Raises Unreachable.
    """
    with unreachable_as_ours(f"reading the manifests of {name}"):
        return holding(table, live_files(table), ranges, struct=struct)


def holding(
    table: Table, files: Iterable[DataFile], ranges: Iterable[OffsetRange], *, struct: str | None
) -> tuple[HeadFile, ...]:
    """Those of `files`, which are the head's, as in `files_holding`."""
    fields, runs = place_fields(table.schema(), struct=struct), runs_of(ranges)
    return tuple(_described(table, file) for file in files if may_hold(file, fields, runs))


def replacement(
    batch_id: str,
    name: str,
    table: Table,
    base_snapshot_id: int | None,
    files: Sequence[HeadFile],
    rewritten: Sequence[Rewritten],
) -> Replaces:
    """What an event says that puts files in the place of those of `files` that were `rewritten`, its manifests written.
    `base_snapshot_id` is the head that names `files`. Raises Unreachable.
    """
    paths = {each.path for each in rewritten}
    gone = [each.file for each in files if each.path in paths]
    kept = output_of(batch_id, name, table, [file for each in rewritten for file in each.files])
    with unreachable_as_ours(f"writing manifests of {name}"):
        manifests = tuple(_named(batch_id, table, spec_id, gone) for spec_id in sorted({f.spec_id for f in gone}))
    return Replaces(base_snapshot_id=base_snapshot_id, gone=manifests, kept=kept.manifests)


def _described(table: Table, file: DataFile) -> HeadFile:
    writable = partitions_known(table.metadata, file.spec_id)
    return HeadFile(file.file_path, file.spec_id, file.record_count, file.file_size_in_bytes, writable, file)


def _named(batch_id: str, table: Table, spec_id: int, gone: Sequence[DataFile]) -> ManifestRef:
    path = table.location_provider().new_metadata_location(f"calve-{batch_id}-gone-{spec_id}-{uuid.uuid4()}.avro")
    return write_manifest_of(table.io, table.metadata, spec_id, [f for f in gone if f.spec_id == spec_id], path)

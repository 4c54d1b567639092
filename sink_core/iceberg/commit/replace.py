"""A range job that replaces rows, at the moment of its commit: whether the table still is what the job was written for.

The job has read data files of the head and written them again without the rows of its ranges. That is right only for
as long as the head names exactly those files, without deletes on them, and descends from the head that was read: else
rows would come twice, or come back. Looked at on each attempt, on the metadata that the swap asserts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.commit.view import TableView
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.range_parts import Replaces


@dataclass(frozen=True, slots=True)
class Taken:
    """The events that one commit takes in, and the range jobs (by their ids) that it drops."""

    events: Sequence[Logged[DataWritten]]
    dropped: tuple[str, ...] = ()


def fitting(table: Table, view: TableView, pending: Sequence[Logged[DataWritten]], rules: Rules = ALL) -> Taken:
    """`pending` without the replacing events that do not fit the table any more.

    Only the last of several is looked at: it was planned when the table had not taken in the ones before, which had
    been dropped then, and may since cover the same ranges. None fits beside deletes: these may be for rows that it has
    written again.
    """
    changing = any(logged.event.deletes for logged in pending)
    replacing = [logged for logged in pending if logged.event.replaces is not None]
    dropped = [
        *replacing[:-1],
        *(logged for logged in replacing[-1:] if changing or not _fits(table, view, logged.event, rules)),
    ]
    offsets = {logged.offset for logged in dropped}
    events = [logged for logged in pending if logged.offset not in offsets]
    return Taken(events, tuple(logged.event.batch_id for logged in dropped))


def _fits(table: Table, view: TableView, event: DataWritten, rules: Rules) -> bool:
    replaces = event.replaces
    if replaces is None or not rules.replay_asserts_its_files:
        return True
    line = {snapshot.snapshot_id for snapshot in view.ancestors() if snapshot is not None}
    if replaces.base_snapshot_id is not None and replaces.base_snapshot_id not in line:
        return False
    if not _all_there(table.io, event.added) or not _exist(table.io, (ref.path for ref in replaces.gone)):
        return False
    return _are_live(table, replaces)


def _all_there(io: FileIO, manifests: Sequence[ManifestRef]) -> bool:
    """Whether the files exist that take the place of others: what is taken out can't be had back."""
    return _exist(io, (ref.path for ref in manifests)) and _exist(io, paths_of(io, manifests))


def _exist(io: FileIO, paths: Iterable[str]) -> bool:
    return all(io.new_input(path).exists() for path in paths)


def _are_live(table: Table, replaces: Replaces) -> bool:
    if not replaces.gone:
        return True
    head = head_manifests(table)
    specs = {ref.spec_id for ref in replaces.gone}
    if has_deletes(head) or not all(partitions_known(table.metadata, spec_id) for spec_id in specs):
        return False
    wanted = paths_of(table.io, replaces.gone)
    live = {
        entry.data_file.file_path
        for manifest in head
        if manifest.content is ManifestContent.DATA and manifest.partition_spec_id in specs
        for entry in live_entries(table.io, manifest)
    }
    return wanted <= live


def head_manifests(table: Table) -> list[ManifestFile]:
    """The manifests of the head."""
    head = table.current_snapshot()
    return head.manifests(table.io) if head is not None else []


def live_files(table: Table) -> list[DataFile]:
    """The data files of the head."""
    return [
        entry.data_file
        for manifest in head_manifests(table)
        if manifest.content is ManifestContent.DATA
        for entry in live_entries(table.io, manifest)
    ]


def has_deletes(manifests: Iterable[ManifestFile]) -> bool:
    """Whether any of the manifests names a live delete file."""
    return any(
        manifest.content is ManifestContent.DELETES
        and (
            manifest.added_files_count is None or manifest.added_files_count + (manifest.existing_files_count or 0) > 0
        )
        for manifest in manifests
    )


def partitions_known(metadata: TableMetadata, spec_id: int) -> bool:
    """Whether files of a partition spec can still be written: it is there, and every column that it is made of."""
    spec, columns = metadata.specs().get(spec_id), metadata.schema().field_ids
    return spec is not None and all(field.source_id in columns for field in spec.fields)


def paths_of(io: FileIO, manifests: Iterable[ManifestRef]) -> frozenset[str]:
    """The data files that the manifests name."""
    return frozenset(entry.data_file.file_path for ref in manifests for entry in entries_of(io, ref))

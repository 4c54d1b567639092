"""A range job that replaces rows, at the moment of its commit: whether the table still is what the job was written for.

The job has read data files of the head and written them again without the rows of its ranges. That is right only for
as long as the head names exactly those files, without deletes on them, and descends from the head that was read: else
rows would come twice, or come back. Looked at on each attempt, on the metadata that the swap asserts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.plan import CommitPlan, SpecialCase
from calve.sink_core.iceberg.files.entries import live_entries, manifests_in
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.range_parts import Replaces


class ReplaceRows(SpecialCase):
    """Range jobs that replace rows are dropped where they do not fit the table any more."""

    def choose(self, plan: CommitPlan) -> CommitPlan:
        """Only the last of several is looked at: it was planned when the table did not have the ones before, which
        had been dropped then, and may since cover the same ranges. None fits beside deletes: these may be for rows that
        it has written again.
        """
        replacing = [logged for logged in plan.pending if logged.event.replaces is not None]
        if not replacing:
            return plan
        changing = any(logged.event.deletes for logged in plan.pending)
        with unreachable_as_ours(f"reading the manifests of {plan.view.table}"):
            dropped = [
                *replacing[:-1],
                *(logged for logged in replacing[-1:] if changing or not _fits(plan, logged.event)),
            ]
        offsets = {logged.offset for logged in dropped}
        events = [logged for logged in plan.pending if logged.offset not in offsets]
        return replace(plan, events=events, dropped=tuple(logged.event.batch_id for logged in dropped))


def _fits(plan: CommitPlan, event: DataWritten) -> bool:
    table, replaces = plan.table, event.replaces
    if replaces is None or not plan.state.rules.replay_asserts_its_files:
        return True
    line = {snapshot.snapshot_id for snapshot in plan.view.ancestors() if snapshot is not None}
    if replaces.base_snapshot_id is not None and replaces.base_snapshot_id not in line:
        return False
    # What is taken out can't be had back: all that takes its place must exist.
    return (
        _exist(table.io, (ref.path for ref in (*event.added, *replaces.gone)))
        and _exist(table.io, paths_of(table.io, event.added))
        and _are_live(table, replaces)
    )


def _exist(io: FileIO, paths: Iterable[str]) -> bool:
    return all(io.new_input(path).exists() for path in paths)


def _are_live(table: Table, replaces: Replaces) -> bool:
    if not replaces.gone:
        return True
    specs = {ref.spec_id for ref in replaces.gone}
    if has_deletes(head_manifests(table)) or not all(partitions_known(table.metadata, spec_id) for spec_id in specs):
        return False
    wanted, live = paths_of(table.io, replaces.gone), {file.file_path for file in live_files(table, specs)}
    return wanted <= live


def head_manifests(table: Table) -> list[ManifestFile]:
    """The manifests of the head."""
    return manifests_in(table.io, table.current_snapshot())


def live_files(table: Table, specs: Container[int] | None = None) -> list[DataFile]:
    """The data files of the head; only those of these specs, if any are given."""
    return [
        entry.data_file
        for manifest in head_manifests(table)
        if manifest.content is ManifestContent.DATA and (specs is None or manifest.partition_spec_id in specs)
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

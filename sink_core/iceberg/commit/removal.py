"""Dead letters that leave their table, at the moment of the commit.

A range job that moves dead letters into tables must not be dropped for one table and committed to another. So its event
for the dead letters names no files that could be gone by then: it says which offsets leave, and the commit writes those
data files again that hold them, whatever others have made of the table meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.plan import CommitPlan, SpecialCase
from calve.sink_core.iceberg.commit.replace import has_deletes, head_manifests, live_files, partitions_known
from calve.sink_core.iceberg.files.kafka_rows import may_hold, place_fields, runs_of
from calve.sink_core.iceberg.files.manifests import rewritten_name, rewritten_prefix, write_manifest, write_manifest_of
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.rewrite import Rewritten, rewrite_without
from calve.sink_core.offset_sets import by_partition, ranges_of
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tables.batch import ManifestRef


class RemoveDeadLetters(SpecialCase):
    """Dead letters that were replayed leave their table with the commit of their job."""

    def build(self, plan: CommitPlan) -> CommitPlan:
        """Memory: as `rewrite_without`. Raises TableUnusable for delete files and for files that can't be written
        again: the table then stays behind.
        """
        table, name = plan.table, plan.view.table
        removing = [logged.event.batch_id for logged in plan.events if logged.event.removes]
        if not removing:
            return plan
        parts = (part for batch_id in removing for part in plan.state.range_jobs[batch_id, name].ranges)
        with unreachable_as_ours(f"taking dead letters out of {name}"):
            rewritten = _rewritten(table, name, ranges_of(by_partition(parts)))
            reach("letters.after-files")
            gone = _manifests(table, [file for file, _ in rewritten], write_manifest_of)
            kept = _manifests(table, [file for _, each in rewritten for file in each.files], write_manifest)
        # Which of several took a row out nobody can tell, and nobody asks.
        removed = {**dict.fromkeys(removing, 0), removing[-1]: sum(each.rows for _, each in rewritten)}
        return replace(plan, gone=gone, kept=kept, removed=removed)


def _rewritten(table: Table, name: str, ranges: Sequence[OffsetRange]) -> list[tuple[DataFile, Rewritten]]:
    """The data files that hold rows of the ranges, each with what takes its place."""
    if has_deletes(head_manifests(table)):
        raise TableUnusable(
            f"{name}: has delete files, and dead letters that were replayed are to leave it",
            hint="have Spark's rewrite_data_files merge them (delete-file-threshold 1); the next commit then goes on",
            code=Code.DELETE_FILES,
        )
    metadata, fields, runs = table.metadata, place_fields(table.schema(), struct=None), runs_of(ranges)
    prefix, found = rewritten_prefix(metadata.next_sequence_number()), list[tuple[DataFile, Rewritten]]()
    for file in live_files(table):
        if not may_hold(file, fields, runs):
            continue
        if not partitions_known(metadata, file.spec_id):
            raise TableUnusable(
                f"{name}: {file.file_path} lies under partition spec {file.spec_id}, of which a column was dropped",
                hint="have Spark's rewrite_data_files write it under the current spec; the next commit then goes on",
                code=Code.COLUMN_OF_SPEC,
            )
        again = rewrite_without(table.io, metadata, file, runs, prefix, target_file_size=None, struct=None)
        if again is not None:
            found.append((file, again))
    return found


def _manifests(
    table: Table, files: Sequence[DataFile | WrittenFile], write: Callable[..., ManifestRef]
) -> tuple[ManifestRef, ...]:
    """One for each spec. By their names orphan removal tells whether they can still land."""
    number, place = table.metadata.next_sequence_number(), table.location_provider().new_metadata_location
    return tuple(
        write(table.io, table.metadata, spec, [f for f in files if f.spec_id == spec], place(rewritten_name(number)))
        for spec in sorted({file.spec_id for file in files})
    )

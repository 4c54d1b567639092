"""Equality deletes that were written for partitions, at the moment of their commit: whether they still reach all rows.

They did when they were written, as the table had one spec (`iceberg/changes/equality`). Once it has another, rows
of their keys may lie under that, now or when a rewrite that is in progress commits; the same files of deletes are then
listed for all partitions. Looked at on each attempt, on the metadata that the swap asserts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertDefaultSpecId, AssertLastAssignedPartitionId, TableRequirement
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.changes.equality import global_spec, with_global_spec
from calve.sink_core.iceberg.commit.plan import CommitPlan, SpecialCase
from calve.sink_core.iceberg.files.manifests import entries_of, rewritten_name, write_manifest_of
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.shares import manifests_of

_FILE = DATA_FILE_TYPE[2].fields


class RelistDeletes(SpecialCase):
    """Before deletes are `relisted` the table gets a spec for that."""

    def build(self, plan: CommitPlan) -> CommitPlan | None:
        """Raises as `with_global_spec`."""
        metadata = plan.table.metadata
        if global_spec(metadata) or not any(_outgrown(metadata, ref) for ref in manifests_of(plan.events)):
            return plan
        with_global_spec(plan.table.catalog, plan.table)
        return None


def relisted(table: Table, ref: ManifestRef, sequence_number: int) -> ManifestRef:
    """What the snapshot with `sequence_number` has in place of `ref`: the same, or its deletes for all partitions, if
    they may not reach all rows where they are. The table has the spec for that.
    """
    metadata = table.metadata
    if not _outgrown(metadata, ref):
        return ref
    spec = global_spec(metadata)
    assert spec is not None, "the table has no spec for all partitions"
    files = [_of_all(entry.data_file, spec.spec_id) for entry in entries_of(table.io, ref)]
    # By its name orphan removal tells whether it can still land.
    path = table.location_provider().new_metadata_location(rewritten_name(sequence_number))
    return write_manifest_of(table.io, metadata, spec.spec_id, files, path, content=ManifestContent.DELETES)


def asserted(metadata: TableMetadata, manifests: Iterable[ManifestRef]) -> tuple[TableRequirement, ...]:
    """What must not have changed for deletes of single partitions, if `manifests` have any."""
    if not any(_of_partitions(metadata, ref) for ref in manifests):
        return ()
    return (
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id}),
    )


def _outgrown(metadata: TableMetadata, ref: ManifestRef) -> bool:
    return len(metadata.partition_specs) > 1 and _of_partitions(metadata, ref)


def _of_partitions(metadata: TableMetadata, ref: ManifestRef) -> bool:
    return ref.deletes and not metadata.specs()[ref.spec_id].is_unpartitioned()


def _of_all(file: DataFile, spec_id: int) -> DataFile:
    given: dict[str, Any] = {field.name: file[at] for at, field in enumerate(_FILE)} | {"partition": Record()}
    listed = DataFile.from_args(**given)
    listed.spec_id = spec_id
    return listed

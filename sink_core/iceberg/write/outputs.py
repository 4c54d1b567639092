"""A table's part of a batch: its files named by manifests that no snapshot names yet; and the ledger's file."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.files.manifests import write_manifest
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.tables.batch import BatchPlan, TableOutput, ToMerge
from calve.sink_core.tables.internal import ledger_rows

FEW = 1_000
"""Rows of the ledger that are not compressed."""


def write_ledger(plan: BatchPlan, counts: Sequence[PartitionCounts], table: Table) -> list[WrittenFile]:
    """The batch's rows of the ledger `table` as data files. Raises Unreachable, TableUnusable."""
    with unreachable_as_ours(f"writing files of {'.'.join(table.name())}"):
        metadata = table.metadata if len(counts) > FEW else _uncompressed(table.metadata)
        writer = TableWriter(table.io, metadata, f"calve-{plan.batch_id}-ledger")
        writer.write(ledger_rows(plan, counts))
        return writer.close()


def _uncompressed(metadata: TableMetadata) -> TableMetadata:
    """A few rows hardly get smaller, and `verify` reads a file of them for each batch, at half the cost."""
    properties = {**metadata.properties, TableProperties.PARQUET_COMPRESSION: "uncompressed"}
    return metadata.model_copy(update={"properties": properties})


def output_of(
    batch_id: str,
    name: str,
    table: Table,
    files: Sequence[WrittenFile],
    changes: int | None = None,
    to_merge: ToMerge | None = None,
) -> TableOutput:
    """The table's part of the batch, its manifests written; without any if there are no files. `changes` and `to_merge`
    as in `TableOutput`.
    """
    metadata = table.metadata
    manifests = []
    with unreachable_as_ours(f"writing manifests of {name}"):
        for spec_id, deletes in sorted({(file.spec_id, bool(file.equality_ids)) for file in files}):
            path = table.location_provider().new_metadata_location(f"calve-{batch_id}-{spec_id}-{uuid.uuid4()}.avro")
            alike = [file for file in files if (file.spec_id, bool(file.equality_ids)) == (spec_id, deletes)]
            manifests.append(write_manifest(table.io, metadata, spec_id, alike, path))
    return TableOutput(name, str(metadata.table_uuid), metadata.current_schema_id, tuple(manifests), changes, to_merge)

"""Manifest lists of format version 2, written by fastavro: pyiceberg works out the schema of each anew.

Lists name manifests as https://iceberg.apache.org/spec/#manifest-lists says.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import fastavro
from pyiceberg.io import OutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, UNASSIGNED_SEQ, ManifestFile, PartitionFieldSummary
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

FORMAT_VERSION = 2
"""Of the tables that Calve writes."""

_FIELDS = MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION]
_NAMES = tuple(field.name for field in _FIELDS.fields)
_SCHEMA = fastavro.parse_schema(AvroSchemaConversion().iceberg_to_avro(_FIELDS, schema_name="manifest_file"))
_SUMMARY = ("contains_null", "contains_nan", "lower_bound", "upper_bound")
_NUMBERS = ("sequence_number", "min_sequence_number")


def write_list(
    output: OutputFile,
    manifests: Iterable[ManifestFile],
    *,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
) -> None:
    """Write the list of a snapshot's manifests. Those that it adds take its sequence number. Raises ValueError for one
    without a number that another snapshot has added.
    """
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
    }
    records = [_record(each, snapshot_id, sequence_number) for each in manifests]
    content = io.BytesIO()
    fastavro.writer(content, _SCHEMA, records, codec="deflate", metadata=header)
    with output.create(overwrite=True) as stream:
        stream.write(content.getvalue())


def _record(manifest: ManifestFile, snapshot_id: int, sequence_number: int) -> dict[str, Any]:
    record = {name: getattr(manifest, name) for name in _NAMES}
    for name in _NUMBERS:
        if record[name] == UNASSIGNED_SEQ:
            if manifest.added_snapshot_id != snapshot_id:
                raise ValueError(f"{manifest.manifest_path}: snapshot {manifest.added_snapshot_id} gave it no {name}")
            record[name] = sequence_number
    summaries: list[PartitionFieldSummary] | None = manifest.partitions
    if summaries:
        record["partitions"] = [{name: getattr(each, name) for name in _SUMMARY} for each in summaries]
    return record

"""What tasks are told of a table's metadata, and what they take from it."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.name_mapping import MappedField


def without_history(metadata: TableMetadata) -> str:
    """What a writer needs; the snapshots of a busy table are megabytes."""
    history = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None}
    return metadata.model_copy(update=history | {"statistics": [], "partition_statistics": []}).model_dump_json()


def schema_in(metadata: str) -> Schema:
    """The current schema, of what `without_history` says."""
    return TableMetadataUtil.parse_raw(metadata).schema()


def mapped_names(metadata: TableMetadata) -> dict[int, list[str]]:
    """The names of each field of the table's name mapping, by field id; nothing if it has none."""
    return dict(_mapped(metadata.name_mapping() or ()))


def _mapped(fields: Iterable[MappedField]) -> Iterable[tuple[int, list[str]]]:
    for of in fields:
        if of.field_id is not None:
            yield of.field_id, of.names
        yield from _mapped(of.fields)

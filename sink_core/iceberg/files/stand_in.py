"""Metadata that stand for a table of another format, where Iceberg's code is shared: for its columns and partitions."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform


def stand_in(schema: Schema, partitions: Sequence[str], location: str) -> TableMetadata:
    """Metadata with these columns, field ids assigned afresh, and the named ones as partitions. Raises ValueError for a
    name that is no column's.
    """
    fields = [
        PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name)
        for number, name in enumerate(partitions)
    ]
    return new_table_metadata(schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, location, {})


def written(metadata: TableMetadata) -> str:
    """As text, for the tasks that write."""
    return metadata.model_dump_json()


def read(text: str) -> TableMetadata:
    """The reverse of `written`."""
    return TableMetadataUtil.parse_raw(text)

"""A data file that was written, as plain values: what a task hands to the driver for the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet data file; with `equality_ids` one of equality deletes by the fields of these ids.

    Sizes in bytes; metrics by field id, bounds and partition values serialised as the Iceberg specification's
    single-value binary form; `split_offsets` are where row groups begin. `sort_order_id` is None if its rows are in no
    order of the table's.
    """

    path: str
    spec_id: int
    partition: tuple[bytes | None, ...]
    rows: int
    size: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    sort_order_id: int | None = None
    equality_ids: tuple[int, ...] = ()


def describe_file(
    path: str,
    size: int,
    partition: Record,
    spec: PartitionSpec,
    schema: Schema,
    statistics: DataFileStatistics,
    sort_order_id: int | None = None,
) -> WrittenFile:
    """The description of a file just written; `partition` is empty for a table without partitions."""
    metrics = statistics.to_serialized_dict()
    types = partition_types(spec, schema)
    values = (None if value is None else to_bytes(kind, value) for kind, value in zip(types, partition, strict=True))  # pyright: ignore[reportArgumentType]
    return WrittenFile(
        path=path,
        spec_id=spec.spec_id,
        partition=tuple(values),
        rows=metrics.pop("record_count"),
        size=size,
        split_offsets=tuple(metrics.pop("split_offsets")),
        sort_order_id=sort_order_id,
        **metrics,
    )


def data_file(file: WrittenFile, spec: PartitionSpec, schema: Schema) -> DataFile:
    """The manifest's entry for a file."""
    types = partition_types(spec, schema)
    values = (None if raw is None else from_bytes(kind, raw) for kind, raw in zip(types, file.partition, strict=True))
    entry = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if file.equality_ids else DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes=dict(file.column_sizes),
        value_counts=dict(file.value_counts),
        null_value_counts=dict(file.null_value_counts),
        nan_value_counts=dict(file.nan_value_counts),
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
        key_metadata=None,
        split_offsets=list(file.split_offsets),
        equality_ids=list(file.equality_ids) or None,
        sort_order_id=file.sort_order_id,
    )
    entry.spec_id = file.spec_id
    return entry


def partition_types(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType]:
    """The types of a spec's partition values, in order."""
    fields = spec.partition_type(schema).fields
    return [field.field_type for field in fields if isinstance(field.field_type, PrimitiveType)]

"""Which partition each row belongs to, in time proportional to the rows, whatever the number of partitions."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import (
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
    partition_record_value,
)
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, Transform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, BooleanType, IcebergType, TimeType

from calve.sink_core.records.columns.arrow import column_of

_ROW = "row"
_HASHES: BucketTransform[IcebergType] = BucketTransform(1 << 20)
_MOST_IN_NAME, _MOST_IN_PATH = 255, 512
"""Bytes. Local file systems end at 255 for a name, object stores at 1,024 for all of a key."""


class Partition(PartitionKey):
    """A partition: `partition` is its tuple as manifests store it, `to_path()` its folder."""

    @cached_property
    def partition(self) -> Record:
        # pyiceberg's own refuses two partition fields on one column, and a bucket of a time.
        return Record(*(self._stored(v) for v in self.field_values))

    def _stored(self, of: PartitionFieldValue) -> object:
        return of.value if isinstance(of.value, int) else partition_record_value(of.field, of.value, self.schema)


def fits_in_path(path: str) -> bool:
    """Whether storage takes folders of this path, percent-encoded as `Partition.to_path` has it.

    Values come from records and may be of any length. A file's partition stands in its manifest; no reader looks at its
    folder, so that the file may as well lie in the table's own.
    """
    return len(path) <= _MOST_IN_PATH and all(len(name) <= _MOST_IN_NAME for name in path.split("/"))


def split(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Partition | None, pa.Table]]:
    """`rows` (columns as in `schema`) by partition, each part's rows in their order. None: the table has no partitions.

    Null source values, also those within a null struct, make null partition values.
    """
    if spec.is_unpartitioned():
        yield None, rows
        return
    fields = enumerate(spec.fields)
    keys = pa.table({str(i): transformed(rows, field.source_id, field.transform, schema) for i, field in fields})
    groups = _group(keys)
    ordered = rows.take(groups[f"{_ROW}_list"].combine_chunks().flatten()) if len(groups) > 1 else rows
    start = 0
    for group, size in zip(groups.drop_columns([f"{_ROW}_list"]).to_pylist(), _sizes(groups), strict=True):
        yield _partition(list(group.values()), spec, schema), ordered.slice(start, size)
        start += size


def _group(keys: pa.Table) -> pa.Table:
    names = keys.column_names
    numbered = keys.append_column(_ROW, pa.array(np.arange(len(keys))))
    return numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")]).select([*names, f"{_ROW}_list"])


def _sizes(groups: pa.Table) -> list[int]:
    return pc.list_value_length(groups[f"{_ROW}_list"]).to_pylist()


def transformed(rows: pa.Table, source_id: int, transform: Transform[Any, Any], schema: Schema) -> pa.Array:
    """A column of `rows` (columns as in `schema`) after one of Iceberg's transforms."""
    kind = schema.find_field(source_id).field_type
    column = column_of(rows, source_id, schema).combine_chunks()
    # The two that pyiceberg knows for values and not for arrays.
    if isinstance(transform, BucketTransform) and isinstance(kind, TimeType):
        column = column.cast(pa.int64())
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        return pc.binary_slice(column, 0, transform.width)
    return transform.pyarrow_transform(kind)(column)


def buckets_of(changes: pa.Table, key: Sequence[int], schema: Schema, buckets: int) -> np.ndarray:
    """For each change one of `buckets`, the same for equal keys in every process. `key` has field ids of `schema`."""
    total = np.zeros(len(changes), np.int64)
    for field_id in key:
        # Iceberg's own hash, which it has for all but booleans: these have little to say.
        if not isinstance(schema.find_type(field_id), BooleanType):
            hashed = transformed(changes, field_id, _HASHES, schema)
            total = total * 31 + hashed.to_numpy(zero_copy_only=False).astype(np.int64)
    return total % buckets


def _partition(values: list[object], spec: PartitionSpec, schema: Schema) -> Partition:
    pairs = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, values, strict=True)]
    return Partition(pairs, spec, schema)

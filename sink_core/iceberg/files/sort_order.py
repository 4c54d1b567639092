"""Rows in a table's sort order, and the order's boundaries between files: keys that Arrow sorts as Iceberg wants it.

A key is a table with two columns for each sort field: a rank, by which nulls and NaN stand where the order wants them,
and the transformed value.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import VoidTransform

from calve.sink_core.iceberg.files.partition import transformed

Distribution = Literal["none", "hash", "range"]
DISTRIBUTION = "write.distribution-mode"


def distribution_of(metadata: TableMetadata) -> Distribution:
    """How rows reach the tasks that write them, by the property `write.distribution-mode`.

    Unlike Iceberg's engines Calve takes `none` where it is absent: a shuffle of each small batch must be asked for. It
    also is `none` where there is nothing to distribute by. Raises ValueError for a mode that there isn't.
    """
    given = metadata.properties.get(DISTRIBUTION, "none").lower()
    for mode in get_args(Distribution):
        if given == mode:
            by_partition = not metadata.spec().is_unpartitioned()
            by_order = mode == "range" and not metadata.sort_order().is_unsorted
            return mode if by_partition or by_order else "none"
    raise ValueError(f"{DISTRIBUTION} is {given}, there are {', '.join(get_args(Distribution))}")


@dataclass(frozen=True, slots=True)
class Order:
    """A sort order on a table's rows, as keys. `sort_by` are Arrow's sort keys of the key's columns."""

    fields: tuple[SortField, ...]
    schema: Schema

    @classmethod
    def within_files(cls, metadata: TableMetadata) -> Order | None:
        """The table's own, by its current schema; None if it has none."""
        order: SortOrder = metadata.sort_order()
        fields = tuple(field for field in order.fields if not isinstance(field.transform, VoidTransform))
        return cls(fields, metadata.schema()) if fields else None

    @classmethod
    def of_files(cls, metadata: TableMetadata) -> Order:
        """By which rows are spread in ranges: the partition first, then the table's own."""
        partition = [
            SortField(source_id=field.source_id, transform=field.transform, direction=SortDirection.ASC)
            for field in metadata.spec().fields
            if not isinstance(field.transform, VoidTransform)
        ]
        own = cls.within_files(metadata)
        return cls((*partition, *(own.fields if own else ())), metadata.schema())

    @classmethod
    def of_files_in(cls, metadata: str) -> Order:
        """As `of_files`, in a task."""
        return cls.of_files(TableMetadataUtil.parse_raw(metadata))

    @property
    def sort_by(self) -> list[tuple[str, str]]:
        return [
            (name, direction)
            for i, field in enumerate(self.fields)
            for name, direction in (
                (f"rank{i}", "ascending"),
                (f"value{i}", "ascending" if field.direction is SortDirection.ASC else "descending"),
            )
        ]

    def keys(self, rows: pa.Table) -> pa.Table:
        """The key of each of `rows`, whose columns are those of the schema."""
        columns: dict[str, pa.Array] = {}
        for i, field in enumerate(self.fields):
            value = transformed(rows, field.source_id, field.transform, self.schema)
            columns[f"rank{i}"], columns[f"value{i}"] = _rank(value, field), value
        return pa.table(columns)

    def sort(self, rows: pa.Table) -> pa.Table:
        """`rows` in order; those with equal keys as they were."""
        if len(rows) < 2:
            return rows
        keys = self.keys(rows)
        # Most columns have neither nulls nor NaN: to leave their rank out halves the work.
        needed = [
            by for by in self.sort_by if not by[0].startswith("rank") or pc.count_distinct(keys[by[0]]).as_py() > 1
        ]
        return rows.take(pc.sort_indices(keys, sort_keys=needed))

    def boundaries(self, sample: pa.Table, ranges: int) -> pa.Table:
        """Keys that divide rows like those of `sample` (keys) into `ranges` of about equal size, or fewer."""
        ordered = sample.take(pc.sort_indices(sample, sort_keys=self.sort_by))
        places = np.unique(np.arange(1, ranges) * len(ordered) // ranges) if len(ordered) else np.empty(0, np.int64)
        chosen = ordered.take(pa.array(places, pa.int64()))
        return chosen.group_by(chosen.column_names, use_threads=False).aggregate([])

    def divide(self, rows: pa.Table, boundaries: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each range that has some, in order; a boundary belongs to the range above it."""
        if not len(boundaries):
            yield 0, rows
            return
        keys = self.keys(rows)
        both = pa.concat_tables([boundaries.cast(keys.schema), keys]).append_column(
            "is_row", pa.array(np.arange(len(boundaries) + len(keys)) >= len(boundaries))
        )
        order = pc.sort_indices(both, sort_keys=[*self.sort_by, ("is_row", "ascending")]).to_numpy()
        ordered = rows.take(pa.array(order[order >= len(boundaries)] - len(boundaries)))
        for number, (start, end) in enumerate(pairwise(_cuts(order, len(boundaries), len(rows)))):
            if end > start:
                yield number, ordered.slice(start, end - start)


def _cuts(order: npt.NDArray[np.uint64], boundaries: int, rows: int) -> Sequence[int]:
    """Before which row, in order, each range begins."""
    at = np.flatnonzero(order < boundaries) - np.arange(boundaries)
    return [0, *at.tolist(), rows]


def _rank(value: pa.Array, field: SortField) -> pa.Array:
    """0, 1 and 2 in the order in which nulls, values and NaN are to come; NaN is the greatest of values."""
    nulls_first = field.null_order is NullOrder.NULLS_FIRST
    null = pa.scalar(0 if nulls_first else 3, pa.int8())
    if not pa.types.is_floating(value.type):
        return pc.if_else(pc.is_null(value), null, pa.scalar(1, pa.int8()))
    ascending = field.direction is SortDirection.ASC
    number, nan = (pa.scalar(1 if ascending else 2, pa.int8()), pa.scalar(2 if ascending else 1, pa.int8()))
    return pc.if_else(pc.is_null(value), null, pc.if_else(pc.is_nan(value), nan, number))

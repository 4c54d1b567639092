"""Which rows, and which data files, are of given source offsets, by the column `_kafka` or columns like its parts."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from calve.sink_core.offsets import OffsetRange, TopicPartition

Runs = Mapping[TopicPartition, Sequence[tuple[int, int]]]
"""Ranges `[start, end)` of offsets by partition, ascending, without overlap."""

# Partition numbers are 32 bits wide; the topic's number goes above them.
_PARTITION_BITS = 32


def runs_of(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, tuple[tuple[int, int], ...]]:
    """The ranges by partition. Overlapping ones must have been merged."""
    found: dict[TopicPartition, tuple[tuple[int, int], ...]] = {}
    for part in sorted(ranges):
        found[part.at] = (*found.get(part.at, ()), (part.start, part.end))
    return found


@dataclass(frozen=True, slots=True)
class PlaceFields:
    """Field ids of topic, partition and offset in a schema, and their types."""

    ids: tuple[int, int, int]
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType]


def place_fields(schema: Schema, *, struct: str | None) -> PlaceFields:
    """Those of the columns `topic`, `partition` and `offset`, or of the fields of the column `struct`."""
    prefix = f"{struct}." if struct else ""
    topic, partition, offset = (schema.find_field(f"{prefix}{name}") for name in ("topic", "partition", "offset"))
    types = tuple(f.field_type for f in (topic, partition, offset) if isinstance(f.field_type, PrimitiveType))
    assert len(types) == 3
    return PlaceFields((topic.field_id, partition.field_id, offset.field_id), types)


def may_hold(file: DataFile, fields: PlaceFields, runs: Runs) -> bool:
    """Whether a data file can hold a row of one of the ranges, by its metrics; True if it has none."""
    topics, partitions, offsets = (_bounds(file, i, t) for i, t in zip(fields.ids, fields.types, strict=True))
    return any(
        _meet(at.topic, at.topic, topics)
        and _meet(at.partition, at.partition, partitions)
        and any(_meet(start, end - 1, offsets) for start, end in parts)
        for at, parts in runs.items()
    )


def of_runs(topic: pa.Array, partition: pa.Array, offset: pa.Array, runs: Runs) -> npt.NDArray[np.bool_]:
    """A flag per row: whether its offset lies in one of the ranges. Rows without topic or offset are of none."""
    flags = np.zeros(len(topic), np.bool_)
    known = np.flatnonzero((topic.is_valid().to_numpy(False)) & (offset.is_valid().to_numpy(False)))
    if len(known) == 0:
        return flags
    rows = pa.array(known)
    names = topic.take(rows).dictionary_encode()
    numbers = partition.take(rows).fill_null(-1).to_numpy().astype(np.int64)
    keys = (names.indices.to_numpy().astype(np.int64) << _PARTITION_BITS) | (numbers & (2**_PARTITION_BITS - 1))
    offsets = offset.take(rows).to_numpy()
    for key in np.unique(keys):
        name = names.dictionary[int(key) >> _PARTITION_BITS].as_py()
        parts = runs.get(TopicPartition(name, int(key) & (2**_PARTITION_BITS - 1)))
        if not parts:
            continue
        mine = np.flatnonzero(keys == key)
        starts, ends = (np.array(values, np.int64) for values in zip(*parts, strict=True))
        place = np.searchsorted(starts, offsets[mine], side="right") - 1
        inside = (place >= 0) & (offsets[mine] < ends[place])
        flags[known[mine[inside]]] = True
    return flags


def _bounds(file: DataFile, field_id: int, kind: PrimitiveType) -> tuple[Any, Any] | None:
    low, high = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if low is None or high is None:
        return None
    return from_bytes(kind, low), from_bytes(kind, high)


def _meet(first: object, last: object, bounds: tuple[Any, Any] | None) -> bool:
    return bounds is None or (first <= bounds[1] and bounds[0] <= last)

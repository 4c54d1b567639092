"""How many equality deletes readers match with each data file: those that came after it, of which a key may be in it.

By the rules of Iceberg's specification (scan planning). Bounds of the keys tell what can't match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from calve.sink_core.iceberg.files.entries import live_entries

Bounds = Mapping[int, tuple[Any, Any]]
"""Lowest and highest value by field id, of those that are known."""


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """A file of deletes. `partition`: spec id and values, None for one that is for all partitions and specs."""

    sequence_number: int
    partition: tuple[int, tuple[object, ...]] | None
    bounds: Bounds


def equality_deletes(table: Table) -> list[EqualityDelete]:
    """Those of the head, the newest first."""
    head, found = table.current_snapshot(), list[EqualityDelete]()
    for manifest in head.manifests(table.io) if head else []:
        if manifest.content != ManifestContent.DELETES:
            continue
        spec_id = manifest.partition_spec_id
        for entry in live_entries(table.io, manifest):
            file = entry.data_file
            if file.content != DataFileContent.EQUALITY_DELETES:
                continue
            values = tuple(file.partition[i] for i in range(len(file.partition)))
            everywhere = table.specs()[spec_id].is_unpartitioned()
            keys = bounds_of(file, table.schema(), file.equality_ids or ())
            found.append(EqualityDelete(entry.sequence_number or 0, None if everywhere else (spec_id, values), keys))
    return sorted(found, key=lambda delete: delete.sequence_number, reverse=True)


def bounds_of(file: DataFile, schema: Schema, field_ids: Sequence[int]) -> dict[int, tuple[Any, Any]]:
    """What a manifest says of the columns. A long text's are cut, the upper one rounded up."""
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    types = {i: schema.find_type(i) for i in field_ids if i in lower and i in upper and schema.find_column_name(i)}
    return {
        i: (from_bytes(kind, lower[i]), from_bytes(kind, upper[i]))
        for i, kind in types.items()
        if isinstance(kind, PrimitiveType)
    }


def count_over(
    deletes: Sequence[EqualityDelete],
    *,
    sequence_number: int,
    partition: tuple[int, tuple[object, ...]],
    bounds: Bounds,
    at_most: int,
) -> int:
    """How many of `deletes` (the newest first) are to be matched with a data file, counted up to `at_most`."""
    count = 0
    for delete in deletes:
        if count == at_most or delete.sequence_number <= sequence_number:
            break
        count += delete.partition in (None, partition) and _may_share_keys(delete.bounds, bounds)
    return count


def _may_share_keys(one: Bounds, other: Bounds) -> bool:
    return all(one[i][0] <= other[i][1] and other[i][0] <= one[i][1] for i in one.keys() & other.keys())

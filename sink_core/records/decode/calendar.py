"""Dates and times that readers of a table can show: the years 1 to 9999, as SQL has them.

A file can hold others, such as PostgreSQL's infinity or milliseconds taken for seconds; but then Python, Trino and what
else has a calendar fail on every query that meets one, and so do the statistics of Parquet files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.sink_core.records.decode.decoded import Decoded, sifted

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}


def on_calendar(decoded: Decoded) -> Decoded:
    """The same without rows that have a date or time before the year 1 or after 9999: these are bad."""
    unfit: dict[int, str] = {}
    for field, column in zip(decoded.columns.schema, decoded.columns.columns, strict=True):
        if _is_dated(field.type) and _first_off(column, field.name) is not None:
            for row in range(len(column)):
                if (found := _first_off(column.slice(row, 1), field.name)) is not None:
                    unfit.setdefault(row, found)
    return sifted(decoded, unfit)


def _is_dated(kind: pa.DataType) -> bool:
    return _is_moment(kind) or any(_is_dated(kind.field(i).type) for i in range(kind.num_fields))


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit in _PER_DAY)


def _first_off(column: pa.Array, path: str) -> str | None:
    """The first value of a column, or of one of its parts, that is off the calendar, with its dotted name."""
    for name, part in _moments(column, path):
        numbers = part.cast(pa.int64()) if pa.types.is_timestamp(part.type) else part.cast(pa.int32())
        per_day = _PER_DAY[part.type.unit] if pa.types.is_timestamp(part.type) else 1
        first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1
        bounds = cast(dict[str, int | None], pc.min_max(numbers).as_py())  # pyright: ignore[reportAttributeAccessIssue]
        for bound in (bounds["min"], bounds["max"]):
            if bound is not None and not first <= bound <= last:
                return f"{name}: {_shown(bound, part.type)} is not within the years 1 to 9999"
    return None


def _moments(column: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """The dates and times in a column; of lists and maps all at once, of structs those that are there."""
    kind = column.type
    if _is_moment(kind):
        yield path, column
    elif isinstance(column, pa.StructArray):
        for field, part in zip(kind, column.flatten(), strict=True):
            yield from _moments(part, f"{path}.{field.name}")
    elif isinstance(column, pa.MapArray):
        first, last = (column.offsets[i].as_py() for i in (0, -1))
        for name, part in (("key", column.keys), ("value", column.items)):
            yield from _moments(part.slice(first, last - first), f"{path}.{name}")
    elif isinstance(column, pa.ListArray | pa.LargeListArray):
        yield from _moments(column.flatten(), f"{path}.element")


def _shown(value: int, kind: pa.DataType) -> str:
    unit = kind.unit if pa.types.is_timestamp(kind) else "D"
    return str(np.datetime64(value, cast("np.datetime64", unit)))  # pyright: ignore

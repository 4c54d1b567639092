"""Times of Parquet's old form, INT96, as Spark and Hive wrote them: nanoseconds of any year.

Arrow reads them as nanoseconds of 64 bits, which go round before 1678 and behind 2261. So a file that has any is read
twice, in microseconds too: where the two differ by more than what microseconds leave out, these are the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

_NS = 1000
_ROUND = 2**64

Batches = Callable[[pq.ParquetFile], Iterator[pa.RecordBatch]]


def exact(file: IO[bytes], opened: pq.ParquetFile, batches: Batches) -> Iterator[tuple[pa.RecordBatch, str]]:
    """The batches of a file, their times as they are written; or a single row, and why it can't be had so."""
    schema = opened.schema
    if all(schema.column(at).physical_type != "INT96" for at in range(len(schema))):
        yield from ((batch, "") for batch in batches(opened))
        return
    with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as coarse:
        for fine, wide in zip(batches(opened), batches(coarse), strict=True):
            yield from _exact(fine, wide)


def _exact(fine: pa.RecordBatch, wide: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, str]]:
    """One batch, or row by row where times are out of the range of nanoseconds."""
    apart = [difference for pair in zip(fine.columns, wide.columns, strict=True) for difference in _apart(*pair)]
    if all(0 <= each < _NS for each in apart):
        yield fine, ""
    elif fine.num_rows > 1:
        for at in range(fine.num_rows):
            yield from _exact(fine.slice(at, 1), wide.slice(at, 1))
    elif any(each % _ROUND for each in apart):
        yield wide, "a time before 1678 or behind 2261 has parts of a microsecond"
    else:
        yield wide, ""


def _apart(fine: pa.Array, wide: pa.Array) -> Iterator[int]:
    """By how many nanoseconds the times differ, also those within lists and structures."""
    if fine.type == wide.type:
        return
    if pa.types.is_timestamp(fine.type):
        both = zip(fine.cast(pa.int64()).to_pylist(), wide.cast(pa.int64()).to_pylist(), strict=True)
        yield from (a - b * _NS for a, b in both if a is not None and b is not None)
    elif pa.types.is_struct(fine.type):
        for pair in zip(fine.flatten(), wide.flatten(), strict=True):
            yield from _apart(*pair)
    else:
        yield from _apart(fine.flatten(), wide.flatten())

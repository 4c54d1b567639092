"""Files of Parquet, row by row. None of them grows: its end says what is in it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from calve.sink_core.codes import Code
from calve.sink_core.errors import TerminalError
from calve.sink_core.source.base import BadRow, Limits, Record, Rows
from calve.sink_core.source.files.int96 import exact
from calve.sink_core.source.files.listing import Found
from calve.sink_core.source.files.place import Part, Place, marks_of, require_same
from calve.sink_core.source.files.values import MOST_RECORDS, Gathered, key_of
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.json_values import compact

LARGE = 2**16
"""A batch of so many bytes may have a record that is too large for its topic."""


@dataclass(frozen=True, slots=True)
class Parquet:
    """Reads files of Parquet into one topic, a JSON object a row."""

    topic: str
    key: Sequence[str]

    def bound(self, file: IO[bytes], found: Found, start: Place | None, limits: Limits) -> Part:
        """At least the next row. Raises TerminalError for what is no Parquet."""
        begin = start.position if start else 0
        with self._opened(file, found.name) as opened:
            rows = int(opened.metadata.num_rows)
        a_row = max(1, found.size // max(1, rows))
        count = max(0, min(rows - begin, limits.max_records, max(1, limits.max_bytes // a_row)))
        bound = Place(begin + count, found.size, found.mtime, found.etag, rows=rows, inode=found.inode)
        return Part(bound, count, count * a_row)

    def read(self, file: IO[bytes], name: str, start: Place | None, bound: Place) -> Iterator[Rows]:
        """Raises FindingError for a file that is another than the one that was planned, or read up to `start`."""
        # By its size at least, where nothing was read of it.
        require_same(file, name, start or bound)
        head, tail = marks_of(file, bound.size)
        at, ended, gathered = start.position if start else 0, -1, Gathered()

        def rows(at: int) -> Rows:
            return gathered.rows(replace(bound, position=at, head=head, tail=tail).offset)

        with self._opened(file, name) as opened:
            first = at
            for batch, lost in exact(file, opened, lambda each: _batches(each, first, bound.position)):
                size = batch.nbytes // max(1, batch.num_rows)
                for row in self._rows(name, at, batch) if not lost else [_bad(name, at, batch, ValueError(lost))]:
                    gathered.add(row, size)
                    at += 1
                    if gathered.is_full:
                        ended = at
                        yield rows(at)
        if ended < at:
            # Also where there was no row: the offset then says that the file was looked at.
            yield rows(at)

    def held(self, *_: object) -> None:
        """Nothing holds a file back that has its end."""

    @contextmanager
    def _opened(self, file: IO[bytes], name: str) -> Generator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(file) as opened:
                names = list[str](opened.schema_arrow.names)
                if len(set(names)) < len(names):
                    raise ValueError(f"has columns of one name: {names}")
                key_of(dict.fromkeys(names), self.key)
                yield opened
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                # Of the file system, not of what is in the file.
                raise
            raise TerminalError(
                f"{name}: {error}",
                hint="have files moved into place once they are whole, or set source.files.settle; correct the file",
                code=Code.FILE_OTHER_FORMAT,
            ) from error

    def _rows(self, name: str, at: int, batch: pa.RecordBatch) -> Iterator[Record | BadRow]:
        try:
            found = batch.to_pylist()
        except (ValueError, OverflowError) as error:
            if batch.num_rows > 1:
                for number in range(batch.num_rows):
                    yield from self._rows(name, at + number, batch.slice(number, 1))
            else:
                yield _bad(name, at, batch, error)
            return
        for number, row in enumerate(found):
            try:
                where = FlatMap({"file": name, "position": at + number}) if batch.nbytes > LARGE else None
                yield Record(self.topic, key_of(row, self.key), compact(row), where=where)
            except ValueError as error:
                yield _bad(name, at + number, batch.slice(number, 1), error)


def _bad(name: str, at: int, row: pa.RecordBatch, error: Exception) -> BadRow:
    # A row of columns has no bytes of its own.
    column = next((each for each in row.schema.names if not _is_json(row, each)), None)
    named = {} if column is None else {"column": column}
    why = str(error) if column is None else f"column {column}: {error}"
    return BadRow(f"row {at} of {name}".encode(), why, FlatMap({"file": name, "position": at, **named}))


def _is_json(row: pa.RecordBatch, column: str) -> bool:
    try:
        compact({"": row.column(column).to_pylist()})
    except (ValueError, OverflowError):
        return False
    return True


def _batches(file: pq.ParquetFile, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Rows `[start, end)`; row groups that lie before or behind are not read."""
    first = 0
    for group in range(file.num_row_groups):
        count = int(file.metadata.row_group(group).num_rows)
        if first < end and start < first + count:
            at = first
            for batch in file.iter_batches(batch_size=MOST_RECORDS, row_groups=[group]):
                low, high = max(start - at, 0), min(end - at, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low)
                at += batch.num_rows
        first += count

"""Rows on their way to the tasks that write them: pieces, which Spark's shuffle carries as they are.

A task keeps its pieces on local disk until it has read all of its ranges, so that one that fails hands on nothing.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.iceberg.changes.existing_rows import Bounds
from calve.sink_core.iceberg.files.partition import split
from calve.sink_core.iceberg.files.sort_order import Distribution, Order
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.budget import Budget
from calve.sink_core.iceberg.write.gathered import Gathered

PIECE_BYTES = 4 * 1024 * 1024
"""Of Arrow, at most; Spark holds several at a time."""

_ONE_IN = 100
"""Of so many rows the key of one is looked at to find the boundaries of ranges."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a table, as Arrow's IPC message. `bucket` is the number of the task that writes them."""

    bucket: int
    table: int
    rows: int
    data: bytes


class Outbox:
    """Where a task leaves pieces for `buckets` tasks that write. Use as a context manager: its files go with it.

    `sent` counts rows by number of the table, and `bounds` says what the keys of changes lie between.
    """

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self.sent: Counter[int] = Counter()
        self._spilled = _scratch()
        self._pieces: list[tuple[int, int, int, int]] = []
        self._samples: list[tuple[int, pa.Table]] = []
        self.bounds: dict[int, list[Bounds | None]] = {}

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *_: object) -> None:
        self._spilled.close()

    def put(self, bucket: int, table: int, rows: pa.Table) -> None:
        for piece in pieces(bucket, table, rows):
            self._pieces.append((piece.bucket, piece.table, piece.rows, self._spilled.write(piece.data)))
            self.sent[table] += piece.rows

    def put_sample(self, table: int, keys: pa.Table) -> None:
        self._samples.append((table, keys))

    def pieces(self) -> Iterator[Piece]:
        self._spilled.seek(0)
        for bucket, table, rows, size in self._pieces:
            yield Piece(bucket, table, rows, self._spilled.read(size))

    def samples(self) -> Iterator[tuple[int, bytes]]:
        """Keys by number of the table, as an IPC stream."""
        for table, keys in self._samples:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, keys.schema) as stream:
                stream.write_table(keys)
            yield table, sink.getvalue().to_pybytes()


class PieceWriter:
    """In place of a table's writer: rows go to the task that writes their partition, or to any one for `range`, whose
    boundaries are known once all tasks have read.
    """

    def __init__(
        self, metadata: TableMetadata, distribution: Distribution, outbox: Outbox, table: int, budget: Budget
    ) -> None:
        self._gathered = Gathered(metadata, self, budget, budget.buffer_bytes)
        self._metadata, self._outbox, self._table = metadata, outbox, table
        self._order = Order.of_files(metadata) if distribution == "range" else None

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.add(rows)

    def close(self) -> list[WrittenFile]:
        """No files: those are written by others."""
        self.flush()
        return []

    def abort(self) -> None:
        self._gathered.take()

    def flush(self) -> None:
        """Hand on what is gathered."""
        rows = self._gathered.take()
        if rows is None:
            return
        if self._order is not None:
            self._outbox.put_sample(self._table, self._order.keys(rows.take(list(range(0, len(rows), _ONE_IN)))))
            self._outbox.put(0, self._table, rows)
            return
        parts: dict[int, list[pa.Table]] = {}
        for partition, part in split(rows, self._metadata.spec(), self._metadata.schema()):
            # Python's own hash of a text differs from process to process.
            bucket = zlib.crc32(partition.to_path().encode()) % self._outbox.buckets if partition else 0
            parts.setdefault(bucket, []).append(part)
        for bucket, tables in parts.items():
            self._outbox.put(bucket, self._table, pa.concat_tables(tables))


def pieces(bucket: int, table: int, rows: pa.Table) -> Iterator[Piece]:
    most = max(1, len(rows) * PIECE_BYTES // max(1, rows.nbytes))
    for start in range(0, len(rows), most):
        part = rows.slice(start, most).combine_chunks().to_batches()
        yield from (Piece(bucket, table, batch.num_rows, batch.serialize().to_pybytes()) for batch in part)


def rows_of(piece: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a piece of a table whose batches have `schema` in memory."""
    return pa.ipc.read_record_batch(pa.py_buffer(piece), schema)


def keys_of(sample: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(sample)) as stream:
        return stream.read_all()


def _scratch() -> IO[bytes]:
    """A file that nobody sees, on the disk that Spark gives its executors for this."""
    spark_s = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return tempfile.TemporaryFile(dir=spark_s or None)

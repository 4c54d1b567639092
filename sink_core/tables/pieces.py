"""Rows on their way to the tasks that write them: pieces, which Spark's shuffle carries as they are.

A task keeps its pieces on local disk until it has read all of its ranges, so that one that fails hands on nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

PIECE_BYTES = 4 * 1024 * 1024
"""Of Arrow, at most; Spark holds several at a time."""

Bounds = tuple[Any, Any]
"""The least and the greatest value of a key's first column among changes, as Python has them."""


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

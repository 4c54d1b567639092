"""Changes on their way to the task that decides for their keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.iceberg.changes.existing_rows import bounds_of
from calve.sink_core.iceberg.files.partition import buckets_of
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Outbox


class ChangePieces:
    """In place of a table's writer: all changes of a key (field ids of `schema`) go to one task, whichever read
    them. If `bounded` the outbox is told what keys lie between.
    """

    def __init__(
        self, schema: Schema, key: Sequence[int], outbox: Outbox, table: int, budget: Budget, *, bounded: bool = False
    ) -> None:
        self._schema, self._key, self._bounded = schema, key, bounded
        self._outbox, self._table, self._budget = outbox, table, budget
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, changes: pa.RecordBatch) -> None:
        self._gathered.append(changes)
        self._bytes += changes.nbytes
        if self._bytes >= self._budget.buffer_bytes:
            self.flush()
        else:
            self._budget.gathers(self, self._bytes)

    def close(self) -> list[WrittenFile]:
        """No files: those are written by others."""
        self.flush()
        return []

    def abort(self) -> None:
        self._gathered, self._bytes = [], 0
        self._budget.gathers(self, 0)

    def flush(self) -> None:
        """Hand on what is gathered."""
        if not self._gathered:
            return
        changes = pa.Table.from_batches(self._gathered)
        self.abort()
        if self._bounded:
            self._outbox.bounds.setdefault(self._table, []).append(bounds_of(changes, self._key, self._schema))
        buckets = buckets_of(changes, self._key, self._schema, self._outbox.buckets)
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        ordered = changes.take(pa.array(order))
        for bucket, start, end in zip(found.tolist(), starts.tolist(), [*starts.tolist()[1:], len(order)], strict=True):
            self._outbox.put(bucket, self._table, ordered.slice(start, end - start))

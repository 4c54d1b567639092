"""Rows on their way to files, gathered up to a number of bytes and brought to the table's schema."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.records.columns.arrow import arrow_schema, conform
from calve.sink_core.tables.budget import Budget, Gathers


class Gathered:
    """Rows of one table by its current schema; `limit` in Arrow's bytes. At the limit, or when `budget` needs room,
    `writer` is told to hand them on.
    """

    def __init__(self, metadata: TableMetadata, writer: Gathers, budget: Budget, limit: int) -> None:
        self.schema = arrow_schema(metadata.schema())
        self._location = metadata.location
        self._writer, self._budget, self._limit = writer, budget, limit
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, columns by name, an optional column they lack null.

        Raises TableUnusable if they lack a required one or a column is of another type than the table's.
        """
        batch = self._conform(rows)
        if batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= self._limit:
            self._writer.flush()
        else:
            self._budget.gathers(self._writer, self._bytes)

    def take(self) -> pa.Table | None:
        """All of it, which is then forgotten; None if there is nothing."""
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        self._budget.gathers(self._writer, 0)
        return rows

    def _conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        known = set(rows.schema.names)
        lacking = [f.name for f in self.schema if not f.nullable and f.name not in known]
        if lacking:
            raise TableUnusable(
                f"table at {self._location}: requires {', '.join(lacking)}, which Calve does not write",
                hint="make the columns optional, or drop them",
                code=Code.FOREIGN_COLUMNS,
            )
        columns = [rows.column(f.name) if f.name in known else pa.nulls(len(rows), f.type) for f in self.schema]
        try:
            return conform(columns, self.schema)
        except pa.ArrowTypeError as error:
            raise TableUnusable(
                f"table at {self._location}: {error}",
                hint="give the column the type Calve writes",
                code=Code.FOREIGN_COLUMNS,
            ) from error

"""Rows on their way to files, gathered up to a number of bytes and brought to the table's schema."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from sink_core.errors import TableUnusable
from sink_core.tables.arrow import arrow_schema, conform


class Gathered:
    """Rows of one table by its current schema; `limit` in Arrow's bytes."""

    def __init__(self, metadata: TableMetadata, limit: int) -> None:
        self.schema = arrow_schema(metadata.schema())
        self._location = metadata.location
        self._limit = limit
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        return self._bytes

    def add(self, rows: pa.RecordBatch) -> bool:
        """Take in rows, columns by name, an optional column they lack null; says whether the limit is reached.

        Raises TableUnusable if they lack a required one or a column is of another type than the table's.
        """
        batch = self._conform(rows)
        if batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes
        return self._bytes >= self._limit

    def take(self) -> pa.Table | None:
        """All of it, which is then forgotten; None if there is nothing."""
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        return rows

    def _conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        known = set(rows.schema.names)
        lacking = [f.name for f in self.schema if not f.nullable and f.name not in known]
        if lacking:
            raise TableUnusable(
                f"table at {self._location}: requires {', '.join(lacking)}, which Calve does not write",
                hint="make the columns optional, or drop them",
            )
        columns = [rows.column(f.name) if f.name in known else pa.nulls(len(rows), f.type) for f in self.schema]
        try:
            return conform(columns, self.schema)
        except pa.ArrowTypeError as error:
            raise TableUnusable(
                f"table at {self._location}: {error}", hint="give the column the type Calve writes"
            ) from error

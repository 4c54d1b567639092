"""Changes of a table, gathered until the last one of each key is known.

The changes of a key must all go through one of these. It holds the last change of each of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError
from calve.sink_core.records.changes.fold import check_unmoved, last_by_key, not_outdated
from calve.sink_core.records.changes.keeping import filled, needed
from calve.sink_core.records.changes.rows import places_of
from calve.sink_core.records.columns.arrow import column_of
from calve.sink_core.tables.row_changes import RowChanges

FOLD_BYTES = 32 * 1024 * 1024
"""Of Arrow, gathered before the changes of each key become one."""


class Folding:
    """Folds the `changes` of `table`, which has the columns of `schema`. `topics` are those that the changes' sources
    are of.
    """

    def __init__(self, schema: Schema, changes: RowChanges, *, table: str, topics: Sequence[str]) -> None:
        self._schema, self._changes, self._table, self._topics = schema, changes, table, topics
        self.places = places_of(changes.key, schema)
        self._gathered: list[pa.Table] = []
        self._bytes, self._limit, self._is_folded = 0, FOLD_BYTES, False
        self._existing: list[pa.RecordBatch] = []
        self._existing_bytes = 0

    def write(self, changes: pa.RecordBatch) -> None:
        """Add changes with the columns of `change_schema`. Raises BadRecord as `last_by_key` does, ProtocolError
        once the table's rows were there.
        """
        if self._existing:
            raise ProtocolError(
                f"{self._table}: a change came after the rows that all changes are held against", code=Code.FAULT
            )
        self._gathered.append(pa.Table.from_batches([changes]))
        self._is_folded = False
        self._bytes += changes.nbytes
        if self._bytes > self._limit:
            self._fold()
            # Where most keys differ, folding what is folded again and again would take the square of the time.
            self._limit = max(FOLD_BYTES, 2 * self._bytes)

    def hold_against(self, existing: pa.RecordBatch) -> None:
        """Leave out the changes that are older than these rows of the table (`existing_rows_schema`), or refuse those
        of keys that came from elsewhere; no change may come any more. Raises BadRecord as `check_unmoved` does.
        """
        self._existing.append(existing)
        self._existing_bytes += existing.nbytes
        if self._existing_bytes > FOLD_BYTES:
            self._hold()

    def taken(self) -> pa.Table | None:
        """The last change of each key, which are gathered no more; None if there was no change."""
        if not self._gathered:
            return None
        self._hold()
        last = self._last()
        self._gathered = []
        return last

    def forget(self) -> None:
        """Let go of what is gathered."""
        self._gathered = []

    def _fold(self) -> None:
        """What is needed of the changes so far takes the place of what was gathered."""
        if not self._changes.keeps_old:
            self._last()
            return
        changes = pa.concat_tables(self._gathered)
        self._last_of(changes)
        # Which of them has the value that the last one keeps is known when all are there.
        self._keep(needed(changes, self.places))
        self._is_folded = False

    def _last(self) -> pa.Table:
        """The last change of each key, which take the place of what was gathered."""
        if not self._is_folded:
            changes = pa.concat_tables(self._gathered)
            self._keep(self._last_of(filled(changes, self.places) if self._changes.keeps_old else changes))
        return self._gathered[0]

    def _last_of(self, changes: pa.Table) -> pa.Table:
        order = self._order(changes)
        return last_by_key(changes, self.places, table=self._table, topics=self._topics, order=order)

    def _hold(self) -> None:
        last = self._last()
        order = self._order(last)
        if self._existing:
            existing = pa.Table.from_batches(self._existing)
            if order is None:
                check_unmoved(last, self.places, existing, table=self._table, topics=self._topics)
            else:
                self._keep(not_outdated(last, self.places, order, existing))
            # Not empty: no change may come any more.
            self._existing, self._existing_bytes = [self._existing[0].slice(0, 0)], 0

    def _order(self, changes: pa.Table) -> pa.ChunkedArray | None:
        order = self._changes.order
        return None if order is None else column_of(changes, order, self._schema)

    def _keep(self, last: pa.Table) -> None:
        self._gathered, self._bytes, self._is_folded = [last], last.nbytes, True

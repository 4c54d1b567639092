"""`Bulk`: all rows of a table each time, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from calve.sink_core.config.units import HOUR
from calve.sink_core.control.status import Blocker
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.tables.table import Planned, QueriedTable

AT = "at"

EVERY_S = HOUR
"""From one reading of all rows to the next, unless it is said."""


class Bulk:
    """Its offset is when the table was planned last, `{"at": seconds}` since 1970 by the clock of who planned it."""

    whole = True
    fields = frozenset({AT})

    def __init__(self, table: QueriedTable) -> None:
        self._table, self._every = table, table.asked.every or EVERY_S

    def require(self) -> None:
        self._table.require_all_seen()

    def blockers(self) -> Iterable[Blocker]:
        """None: all rows are read."""
        return ()

    def waiting(self, last: FlatMap | None) -> tuple[int, str]:
        """All rows once it is time; at least one, as an empty table is read too."""
        left = self._left_s(last)
        return (max(1, self._table.count()), "") if left <= 0 else (0, f"{self._table.name} is read in {left:,.0f} s")

    def plan(self, last: FlatMap | None, limits: Limits) -> Planned | None:  # noqa: ARG002 - all or nothing
        return Planned(FlatMap({AT: round(time.time(), 3)}), self._table.count()) if self._left_s(last) <= 0 else None

    def read(self, last: FlatMap | None, bound: FlatMap) -> Iterator[Rows]:  # noqa: ARG002 - everything
        with self._table.database.streamed() as connection:
            for rows in connection.execute(self._table.select()).partitions():
                yield self._table.rows(bound, rows)
        yield Rows(bound)

    def why_not(self) -> str:
        return ""

    def _left_s(self, last: FlatMap | None) -> float:
        return 0.0 if last is None else float(str(last[AT])) + self._every - time.time()

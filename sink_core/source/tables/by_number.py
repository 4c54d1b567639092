"""`ByNumber`: rows whose number is higher than that of the last row read, once it has been there for a while.

A number is drawn when a row is written, and the row is seen when its transaction commits: until then rows of higher
numbers may be there, and whoever reads these passes the first one over for good. So the highest number is noted with
the time, and rows up to it are read when the note is as old as `settle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from calve.sink_core.control.status import Blocker
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.tables.table import Planned, QueriedTable


@dataclass(frozen=True, slots=True)
class Note:
    """Rows up to the number `read` are read, None if none is; the highest was `seen` at the time `at`, in seconds since
    1970 by the database's clock.
    """

    read: int | None
    seen: int
    at: float

    @classmethod
    def of(cls, offset: FlatMap | None) -> Note | None:
        if offset is None:
            return None
        read = offset["read"]
        return cls(None if read is None else int(str(read)), int(str(offset["seen"])), float(str(offset["at"])))

    @property
    def offset(self) -> FlatMap:
        return FlatMap({"read": self.read, "seen": self.seen, "at": self.at})

    @property
    def is_done(self) -> bool:
        return self.read == self.seen

    def left_s(self, now: float, settle: float) -> float:
        """Until what was seen may be read."""
        return self.at + settle - now


class ByNumber:
    """Its offset is a `Note`."""

    fields = frozenset({"read", "seen", "at"})
    whole = False

    def __init__(self, table: QueriedTable) -> None:
        self._table, self._settle = table, table.asked.settle or 0.0

    def require(self) -> None:
        self._table.require_all_seen()
        _ = self._column

    def blockers(self) -> Iterable[Blocker]:
        """Rows whose number is null; of SQLite also those that have something else for one."""
        null = [self._column.is_(None)] if self._table.may_be_null(self._column) else []
        return self._table.never_read(
            f"without a number in {self._column.name}",
            "have the column filled in (NOT NULL), or read the table by transaction or bulk",
            *null,
            *(sa.not_(each) for each in self._numbers),
        )

    def waiting(self, last: FlatMap | None) -> tuple[int, str]:
        """Rows that can be read, or that are to be noted; none while what was noted settles."""
        note = Note.of(last)
        highest, now = self._look()
        if highest is None:
            return 0, ""
        if note is None or note.is_done:
            return self._count(note.read if note else None, highest), ""
        if (left := note.left_s(now, self._settle)) > 0:
            return 0, f"rows of {self._table.name} up to {note.seen:,} settle for {left:,.1f} s"
        return max(1, self._count(note.read, note.seen)), ""

    def plan(self, last: FlatMap | None, limits: Limits) -> Planned | None:
        note = Note.of(last)
        highest, now = self._look()
        if note is None or note.is_done:
            # Nothing is read yet, but it begins to settle.
            before = note.read if note else None
            is_new = highest is not None and (before is None or highest > before)
            return Planned(Note(before, highest, now).offset, 0) if highest is not None and is_new else None
        if note.left_s(now, self._settle) > 0:
            return None
        if (nth := self._nth(note, limits.max_records)) is not None:
            return Planned(Note(nth, note.seen, note.at).offset, limits.max_records)
        rows = self._count(note.read, note.seen)
        newer = highest is not None and highest > note.seen
        after = Note(note.seen, highest, now) if highest is not None and newer else Note(note.seen, note.seen, note.at)
        return Planned(after.offset, rows)

    def read(self, last: FlatMap | None, bound: FlatMap) -> Iterator[Rows]:
        note, end = Note.of(last), Note.of(bound)
        if note is not None and end is not None and end.read is not None:
            within = self._between(note.read, end.read)
            wanted = self._table.select(self._column.label("calve_number")).where(*within).order_by(self._column)
            with self._table.database.streamed() as connection:
                for rows in connection.execute(wanted).partitions():
                    yield self._table.rows(Note(int(rows[-1][-1]), note.seen, note.at).offset, rows)
        # What is noted next, and numbers that nobody has.
        yield Rows(bound)

    def why_not(self) -> str:
        return (
            f"{self._table.name} is read by incrementing, which gives each row once as long as no transaction lasts "
            f"longer than settle ({self._settle:g} s) and numbers are given in their order"
        )

    @cached_property
    def _column(self) -> sa.Column[Any]:
        return self._table.column(sa.Integer, "whole numbers", "timestamp")

    def _look(self) -> tuple[int | None, float]:
        """The highest number, and the time after it was seen; each statement sees the database for itself."""
        with self._table.database.asked() as connection:
            highest = connection.execute(sa.select(sa.func.max(self._column)).where(*self._numbers)).scalar_one()
            now = connection.execute(sa.select(sa.func.current_timestamp())).scalar_one()
        return highest, round((now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp(), 3)

    def _nth(self, note: Note, records: int) -> int | None:
        """The number of the last row that may be read, if there are more."""
        within = self._between(note.read, note.seen)
        some = sa.select(self._column).where(*within).order_by(self._column).offset(records - 1).limit(2)
        with self._table.database.asked() as connection:
            found = connection.execute(some).scalars().all()
        return int(found[0]) if len(found) == 2 else None

    def _count(self, after: int | None, upto: int) -> int:
        return self._table.count(*self._between(after, upto))

    def _between(self, after: int | None, upto: int) -> list[sa.ColumnElement[bool]]:
        return [*self._numbers, self._column <= upto, *([self._column > after] if after is not None else [])]

    @property
    def _numbers(self) -> list[sa.ColumnElement[bool]]:
        """SQLite keeps any value in a column of numbers."""
        return [sa.func.typeof(self._column) == "integer"] if self._table.database.dialect == "sqlite" else []

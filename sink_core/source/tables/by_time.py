"""`ByTime`: rows whose time is later than that of the last row read, once the time has been past for a while.

A row is written with a time and seen when its transaction commits: until then rows of later times may be there, and
whoever reads these passes the first one over for good. So a row is read when its time lies `settle` in the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from calve.sink_core.codes import Code
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.tables.order import Order
from calve.sink_core.source.tables.table import Planned, QueriedTable

_LAST = "9999-12-31~"
"""Behind all times of four digits, as texts compare."""


class ByTime:
    """Its offset is the place of the last row that was read: the time and the key, by their columns' names."""

    whole = False

    def __init__(self, table: QueriedTable) -> None:
        self._table, self._settle = table, timedelta(seconds=table.asked.settle or 0.0)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(self._order.names)

    def require(self) -> None:
        self._table.require_all_seen()
        _ = self._order

    def blockers(self) -> Iterable[Blocker]:
        """Rows whose time never comes, or that have no place among those of one time."""
        return self._table.never_read(
            f"with no time in {self._column.name} that will be past, or null in their key",
            "have the column filled in (NOT NULL), and no infinity in it; or read the table by transaction or bulk",
            *self._never,
            *(column.is_(None) for column in self._nullable),
        )

    def waiting(self, last: FlatMap | None) -> tuple[int, str]:
        with self._table.database.asked() as connection:
            ready = sa.select(sa.func.count()).select_from(self._table.found).where(*self._ready(connection, last))
            return connection.execute(ready).scalar_one(), ""

    def plan(self, last: FlatMap | None, limits: Limits) -> Planned | None:
        with self._table.database.asked() as connection:
            some = (
                sa.select(*self._order.places)
                .where(*self._ready(connection, last))
                .order_by(*self._order.ascending())
                .limit(limits.max_records)
                .subquery()
            )
            latest = sa.select(some, sa.func.count().over()).order_by(*(each.desc() for each in some.c)).limit(1)
            found = connection.execute(latest).one_or_none()
        return Planned(FlatMap(self._order.place(found[:-1])), found[-1]) if found is not None else None

    def read(self, last: FlatMap | None, bound: FlatMap) -> Iterator[Rows]:
        wanted = self._table.select(*self._order.places).where(
            *self._behind(last), *self._placed, self._order.up_to(bound)
        )
        fields = len(self._order.names)
        with self._table.database.streamed() as connection:
            for rows in connection.execute(wanted.order_by(*self._order.ascending())).partitions():
                yield self._table.rows(FlatMap(self._order.place(rows[-1][-fields:])), rows)

    def why_not(self) -> str:
        return (
            f"{self._table.name} is read by timestamp, which gives each row once as long as no transaction lasts "
            f"longer than settle ({self._settle.total_seconds():g} s)"
        )

    @cached_property
    def _column(self) -> sa.Column[Any]:
        return self._table.column(sa.DateTime, "a time of day with its date", "incrementing")

    @cached_property
    def _order(self) -> Order:
        key = self._table.key
        # A primary key is never null, though SQLite may say so, and of a view's columns nobody knows.
        nullable = any(column.nullable and not column.primary_key for column in key) and not self._table.is_view
        if not key or nullable:
            what = "has no primary key" if not key else "has a key that may be null"
            raise ConfigError(
                f"source.tables: {self._table.name} {what}, and by: timestamp goes on by it among rows of one time",
                hint="set key: to columns that together differ in all rows and are never null",
                code=Code.WAY_DOES_NOT_FIT,
            )
        return Order(self._table, (self._column, *(column for column in key if column is not self._column)))

    @property
    def _nullable(self) -> list[sa.Column[Any]]:
        """Columns of the key that may be null all the same: of a view, and in SQLite of a primary key too."""
        return [column for column in self._order.columns[1:] if self._table.may_be_null(column)]

    @property
    def _placed(self) -> list[sa.ColumnElement[bool]]:
        """Rows that have a place."""
        return [column.is_not(None) for column in self._nullable]

    @property
    def _never(self) -> list[sa.ColumnElement[bool]]:
        """Rows that no clock will reach."""
        never: list[sa.ColumnElement[bool]] = [self._column.is_(None)] if self._table.may_be_null(self._column) else []
        if self._table.database.is_postgres:
            never.append(self._column == sa.cast(sa.literal("infinity", sa.Text), self._column.type))
        elif self._table.database.dialect == "sqlite":
            # Whatever comes behind all times, as it compares texts: other words, and bytes.
            never.append(sa.type_coerce(self._column, sa.String) > _LAST)
        return never

    def _behind(self, last: FlatMap | None) -> list[sa.ColumnElement[bool]]:
        return [self._order.behind(last)] if last is not None else []

    def _ready(self, connection: sa.Connection, last: FlatMap | None) -> list[sa.ColumnElement[bool]]:
        """Rows behind the last one whose time is past long enough by the database's clock."""
        clock = sa.func.current_timestamp()
        kind = self._column.type
        if self._table.database.dialect in ("postgresql", "oracle") and isinstance(kind, sa.DateTime):
            clock = clock if kind.timezone else sa.func.localtimestamp()
        now = connection.execute(sa.select(clock)).scalar_one()
        latest = Order(self._table, [self._column])
        return [*self._behind(last), *self._placed, latest.up_to({self._column.name: self._text(now - self._settle)})]

    def _text(self, moment: datetime) -> str:
        # A text without fractions is less than the same second with them: what settles may be read a second late.
        return moment.strftime("%Y-%m-%d %H:%M:%S") if self._table.database.dialect == "sqlite" else moment.isoformat()

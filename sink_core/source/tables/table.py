"""`QueriedTable`: a table or view as it is read, and what all ways to read one have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import INTERVAL

from calve.sink_core.config.source_systems import TableByQuery
from calve.sink_core.error_codes.source import NO_TABLE_TO_ASK, WAY_DOES_NOT_FIT
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Limits, Record, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.json_values import Form, compact, moment, plain
from calve.sink_core.source.tables.database import Database

_TIMES = (sa.Date, sa.DateTime, sa.Time, INTERVAL)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be read: up to `bound`, `rows` of it."""

    bound: FlatMap
    rows: int


class Way(Protocol):
    """One way to tell the rows of a table that are new.

    `fields` are those of its offsets. `whole`: what was planned is one transaction.
    """

    whole: bool

    @property
    def fields(self) -> frozenset[str]: ...

    def require(self) -> None:
        """Raise ConfigError for a table that can't be read this way."""
        ...

    def waiting(self, last: FlatMap | None) -> tuple[int, str]:
        """Rows that can be read, and a remark for people."""
        ...

    def plan(self, last: FlatMap | None, limits: Limits) -> Planned | None:
        """None if nothing is to be read, nor an offset to be moved."""
        ...

    def read(self, last: FlatMap | None, bound: FlatMap) -> Iterator[Rows]:
        """Rows behind `last` up to `bound`."""
        ...

    def why_not(self) -> str:
        """Why it does not give each row exactly once; empty if it does."""
        ...


class QueriedTable:
    """Looked up in the database when it is needed first. Raises ConfigError for a table or column that isn't there."""

    def __init__(self, database: Database, asked: TableByQuery, topic: str) -> None:
        self.database, self.asked, self.topic = database, asked, topic
        self.partition = FlatMap({"table": asked.table})

    @property
    def name(self) -> str:
        return self.asked.table

    @cached_property
    def found(self) -> sa.Table:
        found = self.database.table(self.name)
        for name in filter(None, (self.asked.column, *self.asked.key)):
            if name not in found.c:
                raise ConfigError(
                    f"source.tables: {self.name} has no column {name}; there are {', '.join(found.c.keys())}",
                    hint="correct column or key of this table",
                    code=NO_TABLE_TO_ASK,
                )
        return found

    @cached_property
    def is_view(self) -> bool:
        with self.database.asked() as connection:
            return self.found.name in sa.inspect(connection).get_view_names(self.found.schema)

    @cached_property
    def key(self) -> tuple[sa.Column[Any], ...]:
        """The columns of a record's key: those that were asked for, else the primary key's, which may be none."""
        return tuple(self.found.c[name] for name in self.asked.key) or tuple(self.found.primary_key.columns)

    def column(self, kind: type[sa.types.TypeEngine[Any]], wanted: str, other: str) -> sa.Column[Any]:
        """The one that tells new rows, of a way that has one. Raises ConfigError for another type than `kind`, in words
        `wanted`; `other` ways may do.
        """
        column = self.found.c[self.asked.column or ""]
        if not isinstance(column.type, kind):
            raise ConfigError(
                f"source.tables: {self.name}.{column.name} is of type {column.type}, and by: {self.asked.by} needs "
                f"{wanted}",
                hint=f"name another column, or set by: {other}",
                code=WAY_DOES_NOT_FIT,
            )
        return column

    def count(self, *where: sa.ColumnElement[bool]) -> int:
        """Rows that are there now."""
        counted = sa.select(sa.func.count()).select_from(self.found).where(*where)
        with self.database.asked() as connection:
            return connection.execute(counted).scalar_one()

    def select(self, *besides: sa.ColumnElement[Any]) -> sa.Select[Any]:
        """All columns, and what is wanted besides, for `records`."""
        return sa.select(*(as_read(column, self.database.dialect) for column in self.found.c), *besides)

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Record]:
        """What `select` found. A table without a key gives records without one."""
        made = list[Record]()
        for row in rows:
            # What was selected besides is behind the columns.
            values = {name: form(value) for (name, form), value in zip(self._forms, row, strict=False)}
            key = compact({name: values[name] for name in self._key_names}) if self._key_names else None
            made.append(Record(self.topic, key, compact(values)))
        return made

    @cached_property
    def _forms(self) -> list[tuple[str, Form]]:
        return [(each.name, moment if isinstance(each.type, sa.DateTime) else plain) for each in self.found.c]

    @cached_property
    def _key_names(self) -> list[str]:
        return [each.name for each in self.key]


def as_read(column: sa.Column[Any], dialect: str) -> sa.ColumnElement[Any]:
    """A column so that nothing of its values gets lost on the way to Python.

    PostgreSQL has times that Python hasn't: infinity, the year 12000, 24:00, a month. SQLite keeps what it is given.
    """
    if dialect == "postgresql" and isinstance(column.type, _TIMES):
        return sa.cast(column, sa.Text)
    if dialect == "sqlite" and isinstance(column.type, (*_TIMES, sa.Numeric)):
        return sa.type_coerce(column, sa.types.NullType())
    return column

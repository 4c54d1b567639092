"""`QueriedTable`: a table or view as it is read, and what all ways to read one have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import sqlalchemy as sa

from calve.sink_core.codes import Code
from calve.sink_core.config.source_systems import TableByQuery
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import BadRow, Limits, Record, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.json_values import moment, plain, token
from calve.sink_core.source.postgres.values import NULL, ToJson, quoted
from calve.sink_core.source.tables.catalog import CatalogEntry
from calve.sink_core.source.tables.database import Database

ToCell = Callable[[Any], bytes]
"""From a driver's value to JSON. Raises ValueError for one that can't be JSON as it is."""


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

    def blockers(self) -> Iterable[Blocker]:
        """What keeps rows that are there from being read, for now or for good."""
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
                    code=Code.NO_TABLE_TO_ASK,
                )
        return found

    @cached_property
    def is_view(self) -> bool:
        with self.database.asked() as connection:
            return self.found.name in sa.inspect(connection).get_view_names(self.found.schema)

    @cached_property
    def catalog(self) -> CatalogEntry:
        """Of a table of PostgreSQL."""
        with self.database.asked() as connection:
            return CatalogEntry.of(connection, self.found)

    def require_all_seen(self) -> None:
        """Raise ConfigError for a table of which the user doesn't see all, or that isn't there."""
        _ = self.found
        if self.database.is_postgres:
            self.catalog.require_all_seen(self.name)

    @cached_property
    def key(self) -> tuple[sa.Column[Any], ...]:
        """The columns of a record's key, which may be none: those that were asked for; else of PostgreSQL those that
        its log goes by, so that a row has one key by every way in; else the primary key's.
        """
        names = self.asked.key or (self.catalog.key if self.database.is_postgres else ())
        return tuple(self.found.c[name] for name in names) or tuple(self.found.primary_key.columns)

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
                code=Code.WAY_DOES_NOT_FIT,
            )
        return column

    def may_be_null(self, column: sa.Column[Any]) -> bool:
        """Of a view's columns nobody knows, and SQLite has null in primary keys that are no whole numbers."""
        if self.is_view:
            return True
        if column.primary_key and self.database.dialect == "sqlite":
            return not isinstance(column.type, sa.Integer)
        return bool(column.nullable)

    def never_read(self, why: str, hint: str, *where: sa.ColumnElement[bool]) -> Iterator[Blocker]:
        """Of rows that any of `where` holds for, if there are any."""
        if where and (rows := self.count(sa.or_(*where))):
            yield Blocker(self.name, f"{rows:,} row{'s' * (rows != 1)} {why}: no run reads them", hint)

    def count(self, *where: sa.ColumnElement[bool]) -> int:
        """Rows that are there now."""
        counted = sa.select(sa.func.count()).select_from(self.found).where(*where)
        with self.database.asked() as connection:
            return connection.execute(counted).scalar_one()

    def select(self, *besides: sa.ColumnElement[Any]) -> sa.Select[Any]:
        """All columns, and what is wanted besides, for `rows`."""
        return sa.select(*(self._as_read(column) for column in self.found.c), *besides)

    def rows(self, offset: FlatMap, found: Iterable[Sequence[Any]]) -> Rows:
        """What `select` found, with the offset behind it. A table without a key gives records without one."""
        made, bad = list[Record](), list[BadRow]()
        for row in found:
            try:
                made.append(self._record(row))
            except ValueError:
                bad.append(self._bad(row))
        return Rows(offset, made, bad)

    def _record(self, row: Sequence[Any]) -> Record:
        # What was selected besides is behind the columns.
        cells = [name + to_cell(value) for (name, to_cell), value in zip(self._cells, row, strict=False)]
        key = b"{%b}" % b",".join([cells[at] for at in self._key_places]) if self._key_places else None
        return Record(self.topic, key, b"{%b}" % b",".join(cells))

    def _bad(self, row: Sequence[Any]) -> BadRow:
        """A row with a value that can't be taken: it names the first of them."""
        cells, errors = list[bytes](), dict[str, str]()
        for column, (name, to_cell), value in zip(self.found.c.keys(), self._cells, row, strict=False):
            try:
                cell = to_cell(value)
            except ValueError as error:
                errors[column] = f"column {column}: {error}"
                cell = token(_legible(value))
            cells.append(name + cell)
        raw, key = (b"{%b}" % b",".join(each) for each in (cells, [cells[at] for at in self._key_places]))
        column, error = next(iter(errors.items()))
        return BadRow(raw, error, FlatMap({"table": self.name, "column": column, "key": key.decode()}))

    def _as_read(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """A column so that nothing of its values gets lost on the way to Python.

        Of PostgreSQL it is the text of its type's output function, as the log has it: a cast gives another one of some
        types, and what a driver makes of a value is less than the value. SQLite keeps what it is given.
        """
        if self.database.is_postgres:
            text: sa.ColumnElement[Any] = sa.func.concat(column)
            if self.database.unchecked:
                # No driver could read it: the bytes as they are.
                text = sa.type_coerce(sa.func.convert_to(text, "SQL_ASCII"), sa.LargeBinary)
            # A row of nulls is null to SQL, and is none.
            return sa.case((sa.func.num_nulls(column) == 0, text))
        return sa.type_coerce(column, sa.types.NullType()) if self.database.dialect == "sqlite" else column

    @cached_property
    def _cells(self) -> list[tuple[bytes, ToCell]]:
        """For each column its name as JSON, and what makes its values JSON."""
        return [(quoted(each.name) + b":", self._to_cell(each)) for each in self.found.c]

    def _to_cell(self, column: sa.Column[Any]) -> ToCell:
        if self.database.is_postgres:
            return _of_text(self.database.types.to_json(self.catalog.kinds[column.name]))
        if self.database.dialect == "sqlite" and isinstance(column.type, sa.Boolean):
            return lambda value: token(bool(value) if value in (0, 1) else plain(value))
        return (lambda value: token(moment(value))) if isinstance(column.type, sa.DateTime) else _plain

    @cached_property
    def _key_places(self) -> list[int]:
        columns = self.found.c.keys()
        return [columns.index(each.name) for each in self.key]


def _legible(value: Any) -> str:
    """Of a text that is none: what is no UTF-8 as `\\xff`."""
    is_raw = isinstance(value, bytes | bytearray | memoryview)
    raw = bytes(value) if is_raw else str(value).encode(errors="surrogateescape")
    return raw.decode(errors="backslashreplace")


def _of_text(to_json: ToJson) -> ToCell:
    def to_cell(value: Any) -> bytes:
        if value is None:
            return NULL
        return to_json(value.encode() if isinstance(value, str) else bytes(value))

    return to_cell


def _plain(value: Any) -> bytes:
    return token(plain(value))

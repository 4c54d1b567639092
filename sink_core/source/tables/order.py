"""`Order`: the place of a row among others by some of its columns, in SQL and in a source offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.flat_map import Primitive
from calve.sink_core.source.tables.table import QueriedTable

Place = Mapping[str, Primitive]
"""A row's place, by column: whole numbers and texts. Texts have all digits, and the database reads what it wrote."""


class Order:
    """By `columns`, the first most. Raises ConfigError for types whose values would not come back as they were."""

    def __init__(self, table: QueriedTable, columns: Sequence[sa.Column[Any]]) -> None:
        self._dialect = table.database.dialect
        self.columns = tuple(columns)
        for column in columns:
            if not self._is_exact(column.type):
                raise ConfigError(
                    f"source.tables: {table.name}.{column.name} is of type {column.type}, which gives no place to go "
                    "on from",
                    hint="take a column of whole numbers, texts or times",
                    code=Code.WAY_DOES_NOT_FIT,
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def places(self) -> list[sa.ColumnElement[Any]]:
        """What to select for `place`, named by number."""
        return [self._shown(column).label(f"calve_{i}") for i, column in enumerate(self.columns)]

    def place(self, values: Sequence[Any]) -> dict[str, Primitive]:
        """From what `places` gave."""
        return {
            column.name: value.isoformat() if isinstance(value, datetime) else value
            for column, value in zip(self.columns, values, strict=True)
        }

    def ascending(self) -> list[sa.ColumnElement[Any]]:
        return [column.asc() for column in self.columns]

    def behind(self, place: Place) -> sa.ColumnElement[bool]:
        """Rows that come after it."""
        return self._beyond(self.columns, place, "__gt__", "__ge__", sa.false())

    def up_to(self, place: Place) -> sa.ColumnElement[bool]:
        """Rows that come before it, and the one that is there."""
        return self._beyond(self.columns, place, "__lt__", "__le__", sa.true())

    def _beyond(
        self,
        columns: Sequence[sa.Column[Any]],
        place: Place,
        strictly: str,
        loosely: str,
        same: sa.ColumnElement[bool],
    ) -> sa.ColumnElement[bool]:
        """As rows of values are compared, which not all databases do; said so that an index of the first serves."""
        if not columns:
            return same
        first, *others = columns
        value = self._value(first, place[first.name])
        is_beyond = getattr(self._compared(first), strictly)(value)
        deeper = self._beyond(others, place, strictly, loosely, same)
        return sa.and_(getattr(self._compared(first), loosely)(value), sa.or_(is_beyond, deeper))

    def _is_exact(self, kind: Any) -> bool:
        # The two are asked for texts of what else they have, and read them again.
        if self._dialect == "postgresql":
            return not isinstance(kind, sa.Float | sa.LargeBinary | sa.types.NullType)
        return isinstance(kind, sa.Integer | sa.String | sa.DateTime)

    def _shown(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        if isinstance(column.type, sa.Integer | sa.String):
            return column
        return sa.cast(column, sa.Text) if self._dialect == "postgresql" else self._compared(column)

    def _compared(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        # SQLite has no times: it compares the texts that somebody wrote, with or without fractions.
        is_text = self._dialect == "sqlite" and isinstance(column.type, sa.DateTime)
        return sa.type_coerce(column, sa.String) if is_text else column

    def _value(self, column: sa.Column[Any], value: Primitive) -> sa.ColumnElement[Any]:
        if isinstance(column.type, sa.Integer | sa.String):
            return sa.literal(value, column.type)
        if self._dialect == "postgresql":
            return sa.cast(sa.literal(str(value), sa.Text), column.type)
        if self._dialect == "sqlite":
            return sa.literal(str(value), sa.String)
        return sa.literal(datetime.fromisoformat(str(value)), column.type)

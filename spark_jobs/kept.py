"""Values that rows keep in a merge: those of the batches before, as far as it folds them, else those of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, StringType

from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE, can_keep
from calve.sink_core.tables.batch import ToMerge
from calve.sink_core.tables.row_changes import DELETED_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST, _WENT = "calve:last", "calve:went"


@dataclass(frozen=True, slots=True)
class Kept:
    """The types of the columns whose values may be kept, by name. `soft`: a row may be there, and say that it has gone:
    nothing is kept of it.
    """

    kinds: Mapping[str, IcebergType]
    soft: bool

    @classmethod
    def of(cls, schema: Schema, by: ToMerge) -> Kept:
        """Of batches written in that way for a table."""
        fields = (field for field in schema.fields if field.field_id not in by.key)
        return cls({field.name: field.field_type for field in fields if can_keep(field.field_type)}, by.soft)

    def folded(self, said: DataFrame, key: Sequence[str], batch: str, gone: str) -> DataFrame:
        """For each key what the last batch says that has it, with what it keeps of those before. `said` has the batch
        and whether the row goes in columns of these names.
        """
        from pyspark.sql import functions as f

        rest = [name for name in said.columns if name not in (*key, batch)]
        went = f"{_one(gone)} OR {self._gone()}"
        found = said.groupBy(*map(_one, key)).agg(
            f.expr(f"max_by(struct({', '.join(map(_one, rest))}), {_one(batch)})").alias(_LAST),
            f.expr(f"max({_one(batch)}) FILTER (WHERE {went})").alias(_WENT),
            *(
                f.expr(
                    f"max_by(struct({_one(name)} AS v, {_one(batch)} AS b), {_one(batch)}) "
                    f"FILTER (WHERE NOT ({went}) AND NOT {_is(_one(name), KEEP, kind)})"
                ).alias(f"calve:had-{name}")
                for name, kind in self.kinds.items()
            ),
        )
        last = {name: f"{_one(_LAST)}.{_one(name)}" for name in rest}
        for name, kind in self.kinds.items():
            had = _one(f"calve:had-{name}")
            last[name] = (
                f"CASE WHEN NOT {_is(last[name], KEEP, kind)} THEN {last[name]} "
                f"WHEN {had}.b > coalesce({_one(_WENT)}, -1) THEN {had}.v "
                f"WHEN {_one(_WENT)} IS NOT NULL THEN {_literal(UNAVAILABLE, kind)} ELSE {last[name]} END"
            )
        return found.selectExpr(*map(_one, key), *(f"{value} AS {_one(name)}" for name, value in last.items()))

    def updates(self, columns: Sequence[str]) -> str:
        """The assignments of a merge of `s` into rows of `t` that are there."""
        return ", ".join(f"t.{_one(name)} = {self._value(name, f't.{_one(name)}')}" for name in columns)

    def inserts(self, columns: Sequence[str]) -> str:
        """Columns and values of rows of `s` that are not there."""
        values = (self._value(name, None) for name in columns)
        return f"({', '.join(map(_one, columns))}) VALUES ({', '.join(values)})"

    def _value(self, name: str, old: str | None) -> str:
        new = f"s.{_one(name)}"
        if name not in self.kinds:
            return new
        kind = self.kinds[name]
        none = _literal(UNAVAILABLE, kind)
        kept = none if old is None else f"CASE WHEN {self._gone('t.')} THEN {none} ELSE {old} END"
        return f"CASE WHEN {_is(new, KEEP, kind)} THEN {kept} ELSE {new} END"

    def _gone(self, prefix: str = "") -> str:
        return f"coalesce({prefix}{_one(DELETED_COLUMN)}, false)" if self.soft else "false"


def _is(column: str, marker: str, kind: IcebergType) -> str:
    return f"({column} <=> {_literal(marker, kind)})"


def _literal(marker: str, kind: IcebergType) -> str:
    if isinstance(kind, ListType):
        return f"array({_literal(marker, kind.element_type)})"
    found = f"X'{marker.encode().hex()}'"
    return f"CAST({found} AS STRING)" if isinstance(kind, StringType) else found


def _one(name: str) -> str:
    """A column's name, dots and all, as an identifier."""
    return f"`{name.replace('`', '``')}`"

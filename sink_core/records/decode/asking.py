"""What the schemas of records want of a table, and what they have that it lacks, each looked at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pyiceberg.schema import Schema, index_by_name

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.checked import Columns, Unfit
from calve.sink_core.records.columns.evolution import merged, room
from calve.sink_core.records.columns.names import Names
from calve.sink_core.records.columns.schema_wants import Beyond, schema_wants
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.decode.others import lacking

S = TypeVar("S")


def asking_columns(
    table: Schema, steps: Collection[EvolveStep], columns_of: Callable[[S, Unfit], Columns], names: Names
) -> Asking[S]:
    """`columns_of` gives the columns for records of a schema, without the fields that no column could hold; or raises
    ConfigError for one that no columns can be made of, which wants nothing.
    """
    there = index_by_name(table) if table.fields else {}

    def columns_for(schema: S) -> Columns | None:
        try:
            return columns_of(schema, Unfit(there))
        except ConfigError:
            return None

    def wants(schema: S) -> Schema | None:
        columns = columns_for(schema)
        return schema_wants(columns.fields, table, steps, names, columns.left_out) if columns else None

    def lacks(schema: S) -> Sequence[str]:
        columns = columns_for(schema) if names.count else None
        if columns is None:
            return ()
        missing = lacking(columns.as_struct(), table.as_struct(), names)
        # Of two fields with one name but for its case the table may have the one that a new table would not.
        has = there.keys() - (index_by_name(columns).keys() if columns.fields else set())
        left_out = [name for name in columns.left_out if names.counts(name) and name not in has]
        return [*missing, *(name for name in left_out if not any(name.startswith(f"{of}.") for of in missing))]

    return Asking(bool(steps) or room(steps, table) is not None, wants, lacks)


@dataclass(frozen=True, slots=True)
class _Met(Generic[S]):
    """What was said of a schema, which is kept so that no other one gets its id."""

    schema: S
    lacks: Sequence[str]
    beyond: str


@dataclass(slots=True)
class Asking(Generic[S]):
    """`wants` says what records of a schema need of the table, as `schema_wants` does; nobody asks unless it `grows`.
    `lacks` says which fields of theirs it has no column for.
    """

    grows: bool
    wants: Callable[[S], Schema | None]
    lacks: Callable[[S], Sequence[str]]
    _met: dict[int, _Met[S]] = field(default_factory=dict[int, _Met[Any]])
    _wanted: list[Schema] = field(default_factory=list[Schema])
    _dropped: Counter[str] = field(default_factory=Counter[str])

    def take(self, schema: S, records: int) -> str:
        """Count so many records of `schema`; why they are bad, if it needs more columns than the table may be given."""
        met = self._met.get(id(schema)) or self._met.setdefault(id(schema), self._meet(schema))
        self._dropped.update(dict.fromkeys(met.lacks, records))
        return met.beyond

    def _meet(self, schema: S) -> _Met[S]:
        wanted, beyond = None, ""
        try:
            wanted = self.wants(schema) if self.grows else None
        except Beyond as why:
            beyond = str(why)
        if wanted is not None:
            self._wanted.append(wanted)
        return _Met(schema, self.lacks(schema), beyond)

    def told(self, decoded: Decoded) -> Decoded:
        """With what is wanted, and was dropped, since the last time."""
        if not self._wanted and not self._dropped:
            return decoded
        wanted, dropped = merged(self._wanted) if self._wanted else None, self._dropped
        self._wanted, self._dropped = [], Counter()
        return replace(decoded, wanted=wanted, dropped={**decoded.dropped, **dropped})

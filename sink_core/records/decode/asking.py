"""What the schemas of records want of a table, and what they have that it lacks, each looked at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pyiceberg.schema import Schema, index_by_name

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.checked import Columns, Unfit
from calve.sink_core.records.columns.evolution import merged, room
from calve.sink_core.records.columns.names import Names
from calve.sink_core.records.columns.schema_wants import Beyond, schema_wants
from calve.sink_core.records.decode.decoded import FIT, BadValue, Decoded
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


@dataclass(slots=True)
class Asking(Generic[S]):
    """`wants` says what records of a schema need of the table, as `schema_wants` does; nobody asks unless it `grows`.
    `lacks` says which fields of theirs it has no column for. `beyond` why records of a schema are bad, as it needs more
    columns than there is room for.
    """

    grows: bool
    wants: Callable[[S], Schema | None]
    lacks: Callable[[S], Sequence[str]]
    _beyond: dict[int, tuple[S, str]] = field(default_factory=dict[int, Any])
    _wanted: list[Schema] = field(default_factory=list[Schema])
    _lacking: dict[int, tuple[S, Sequence[str]]] = field(default_factory=dict[int, Any])
    _dropped: Counter[str] = field(default_factory=Counter[str])

    def met(self, schema: S) -> None:
        """Records of `schema` have come, for the first time."""
        try:
            wanted = self.wants(schema) if self.grows else None
        except Beyond as why:
            wanted, self._beyond[id(schema)] = None, (schema, str(why))
        if wanted is not None:
            self._wanted.append(wanted)

    def beyond(self, schema: S, places: Iterable[int]) -> dict[int, BadValue]:
        """The verdicts on records of `schema` at these places, if it needs more columns than the table may be given."""
        found = self._beyond.get(id(schema))
        return {place: BadValue(place, FIT, found[1]) for place in places} if found else {}

    def count(self, schema: S, records: int) -> None:
        """So many records of `schema` have come."""
        # The schema is kept, so that no other one gets its id.
        found = self._lacking.get(id(schema)) or self._lacking.setdefault(id(schema), (schema, self.lacks(schema)))
        self._dropped.update(dict.fromkeys(found[1], records))

    def told(self, decoded: Decoded) -> Decoded:
        """With what is wanted, and was dropped, since the last time."""
        if not self._wanted and not self._dropped:
            return decoded
        wanted, dropped = merged(self._wanted) if self._wanted else None, self._dropped
        self._wanted, self._dropped = [], Counter()
        return replace(decoded, wanted=wanted, dropped={**decoded.dropped, **dropped})

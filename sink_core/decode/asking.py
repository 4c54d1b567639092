"""What the schemas of records want of a table, each looked at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pyiceberg.schema import Schema

from sink_core.config.tables import EvolveStep
from sink_core.decode.decoded import Decoded
from sink_core.decode.names import Names
from sink_core.errors import ConfigError
from sink_core.tables.evolution import merged
from sink_core.tables.schema_wants import schema_wants

S = TypeVar("S")


def asking_columns(
    table: Schema, steps: Collection[EvolveStep], columns_of: Callable[[S], Schema], names: Names
) -> Asking[S]:
    """`columns_of` gives the columns for records of a schema, or raises ConfigError: such a schema wants nothing."""

    def wants(schema: S) -> Schema | None:
        try:
            columns = columns_of(schema)
        except ConfigError:
            return None
        return schema_wants(columns.fields, table, steps, names)

    return Asking(steps, wants)


@dataclass(slots=True)
class Asking(Generic[S]):
    """`wants` says what records of a schema need of the table, as `schema_wants` does; nobody asks without `steps`."""

    steps: Collection[EvolveStep]
    wants: Callable[[S], Schema | None]
    _wanted: list[Schema] = field(default_factory=list[Schema])

    def met(self, schema: S) -> None:
        """Records of `schema` have come, for the first time."""
        wanted = self.wants(schema) if self.steps else None
        if wanted is not None:
            self._wanted.append(wanted)

    def told(self, decoded: Decoded) -> Decoded:
        """With what is wanted since the last time."""
        if not self._wanted:
            return decoded
        wanted, self._wanted = merged(self._wanted), []
        return replace(decoded, wanted=wanted)

"""Formats whose schemas are in a registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyiceberg.schema import Schema

from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.format import Steps, Values
from calve.sink_core.records.decode.framing import Framing, Named
from calve.sink_core.records.decode.registry import Registry, newest

S = TypeVar("S", bound=Named)


@dataclass(frozen=True, slots=True)
class RegistryFormat(Generic[S]):
    """Values in Confluent's wire format, with the schemas of a registry."""

    registry: Registry
    schemas: Framing[S]
    make_decoder: Callable[[Schema, Framing[S], Steps, Names], Decoder]
    columns_of: Callable[[S], Schema]

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return self.make_decoder(schema, self.schemas, steps, names)

    def columns(self, values: Values) -> Schema:
        return self.columns_of(self.newest(values()))

    def newest(self, values: list[bytes]) -> S:
        """The schema of the values that was registered last. Raises ConfigError if there is none, Unreachable."""
        return newest(self.schemas, values)

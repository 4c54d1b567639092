"""What a format of records has to bring."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from pyiceberg.schema import Schema

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoder

Steps = Collection[EvolveStep]

Values = Callable[[], list[bytes]]
"""Values of records of one format, read when they are asked for."""


class Format(Protocol):
    """A format of values; what its decoders share, such as a registry's schemas, lives as long as it."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        """A decoder for a table whose columns, `_kafka` left out, are those of `schema`, found under `names`; what it
        may be given more is of `steps`."""
        ...

    def columns(self, values: Values) -> Schema:
        """The columns of a new table for such values. Raises ConfigError, Unreachable."""
        ...

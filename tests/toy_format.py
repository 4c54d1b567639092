"""A format of records that the product does not know: `key=value` pairs, one record a line. One file is all it takes:
what makes columns and rows of it, and its row among the formats.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from calve.sink_core.config.formats import FormatRow
from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import DECODE, BadValue, Decoded
from calve.sink_core.records.decode.format import Format, Steps, Values

PAIRS = FormatRow("pairs", "tests.toy_format:pairs_format")


def pairs_format(_value: ValueSettings) -> Format:
    return Pairs()


class Pairs:
    """`id=1 text=a`: columns of strings."""

    def decoder(self, schema: Schema, _steps: Steps = (), _names: Names = EXACT) -> PairsDecoder:
        return PairsDecoder(schema)

    def columns(self, values: Values) -> Schema:
        names = sorted({pair.partition("=")[0] for value in values() for pair in value.decode().split() if "=" in pair})
        return Schema(*(NestedField(at, name, StringType(), required=False) for at, name in enumerate(names, 1)))


class PairsDecoder:
    """Rows of the table's columns; a value that is no pairs is bad."""

    def __init__(self, schema: Schema) -> None:
        self._schema = arrow_schema(schema)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        rows, good, bad = list[dict[str, str]](), list[int](), list[BadValue]()
        for at, value in enumerate(values):
            try:
                rows.append(_pairs(value))
                good.append(at)
            except ValueError:
                bad.append(BadValue(at, DECODE, "no pairs"))
        return Decoded(pa.RecordBatch.from_pylist(rows, schema=self._schema), good, tuple(bad))


def _pairs(value: bytes) -> dict[str, str]:
    """Raises ValueError for a value that is none."""
    found: dict[str, str] = {}
    for pair in value.decode().split():
        name, text = pair.split("=")
        found[name] = text
    return found

"""Values that are not looked into: all of the value becomes the column `value`, as text or as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, NestedField, StringType

from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import DECODE, FIT, BadValue, Decoded, Decoder
from calve.sink_core.records.decode.format import Format, Steps, Values

COLUMN = "value"
TYPES: dict[str, IcebergType] = {"string": StringType(), "bytes": BinaryType()}
"""The column's type by format."""


def whole_schema(format_type: str) -> Schema:
    """The columns of a table for `string` or `bytes`."""
    return Schema(NestedField(1, COLUMN, TYPES[format_type], required=False))


class WholeDecoder:
    """Decodes values for one table. Other columns than `value` stay null; one that is required makes a value bad."""

    def __init__(self, schema: Schema, format_type: str) -> None:
        self._target, self._is_text = arrow_schema(schema), format_type == "string"
        self._unfit = _unfit(schema, format_type)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        if self._unfit:
            bad = tuple(BadValue(place, FIT, self._unfit) for place in range(len(values)))
            return Decoded(self._rows([]), [], bad)
        try:
            return Decoded(self._rows(values), None, ())
        except pa.ArrowInvalid:
            pass
        reasons = {place: reason for place, value in enumerate(values) if (reason := _not_text(value))}
        good = [place for place in range(len(values)) if place not in reasons]
        bad = tuple(BadValue(place, DECODE, reason) for place, reason in reasons.items())
        return Decoded(self._rows([values[place] for place in good]), good, bad)

    def _rows(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Raises ArrowInvalid if one that must be text isn't UTF-8."""
        given = pa.array(values, pa.large_binary())
        column = given.cast(pa.large_string()) if self._is_text else given
        arrays = [column if field.name == COLUMN else pa.nulls(len(values), field.type) for field in self._target]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def _unfit(schema: Schema, format_type: str) -> str | None:
    """Why no value fits the table; None if they do."""
    wanted = TYPES[format_type]
    found = next((field for field in schema.fields if field.name == COLUMN), None)
    if found is None:
        return f"{COLUMN}: the table has no such column; {format_type} is stored in it"
    if found.field_type != wanted:
        return f"{COLUMN}: {format_type} doesn't fit {found.field_type}"
    required = next((field.name for field in schema.fields if field.required and field.name != COLUMN), None)
    return f"{required}: required, but missing or null" if required else None


def _not_text(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return None


def whole_format(value: ValueSettings) -> Format:
    """All of the value, as text or as bytes."""
    return Whole(value.type)


@dataclass(frozen=True, slots=True)
class Whole:
    """The value as it is: `string` or `bytes`."""

    type: str

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:  # noqa: ARG002 - one column is all
        return WholeDecoder(schema, self.type)

    def columns(self, values: Values) -> Schema:  # noqa: ARG002 - whatever the values are
        return whole_schema(self.type)

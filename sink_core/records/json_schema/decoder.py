"""JSON objects behind a header that names their JSON Schema.

The schema makes a new table's columns; records are not validated against it, but read as JSON is: what the columns
take fits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import DECODE, BadValue, Decoded, cut, placed
from calve.sink_core.records.decode.framing import Framing
from calve.sink_core.records.json.decoder import JsonDecoder


@dataclass(frozen=True, slots=True, eq=False)
class JsonSchema:
    """A schema as parsed JSON. `others` are the schemas it refers to, by the name it uses for each."""

    name: str
    root: Any = field(repr=False)
    others: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def unfit(self) -> str | None:
        """Why values can't be rows; None if they can."""
        return None


def json_schema(name: str, text: str, references: Sequence[tuple[str, str]] = ()) -> JsonSchema:
    """The schema written in `text`; `references` are names and texts of others. Raises ValueError if one isn't JSON."""
    try:
        return JsonSchema(name, json.loads(text), {other: json.loads(body) for other, body in references})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON Schema: {error}") from None


class JsonSchemaDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`)."""

    def __init__(
        self,
        schema: Schema,
        framing: Framing[JsonSchema],
        steps: Collection[EvolveStep] = (),
        names: Names = EXACT,
    ) -> None:
        self._framing = framing
        self._inner = JsonDecoder(schema, steps, names)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        size = self._framing.header_bytes
        reasons = {header: self._reason(header) for header in {value[:size] for value in values}}
        if not any(reasons.values()):
            return self._inner.decode([value[size:] for value in values])
        bad: dict[int, BadValue] = {}
        places: list[int] = []
        for place, value in enumerate(values):
            if reason := reasons[value[:size]]:
                bad[place] = BadValue(place, DECODE, cut(reason))
            else:
                places.append(place)
        return placed(self._inner.decode([values[place][size:] for place in places]), places, bad)

    def _reason(self, header: bytes) -> str | None:
        """What is wrong with the header or its schema."""
        try:
            self._framing.writer_of(header)
        except ValueError as error:
            return str(error)
        return None

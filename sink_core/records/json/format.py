"""JSON without schemas."""

from __future__ import annotations

from pyiceberg.schema import Schema

from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.format import Format, Steps, Values
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder


def json_format(_value: ValueSettings) -> Format:
    """Needs no settings."""
    return Json()


class Json:
    """One JSON object per value."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return JsonDecoder(schema, steps, names)

    def columns(self, values: Values) -> Schema:
        return infer_schema(values())

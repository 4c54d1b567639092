"""JSON in the envelope of Kafka Connect."""

from __future__ import annotations

from pyiceberg.schema import Schema

from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.connect.columns import connect_columns
from calve.sink_core.records.connect.decoder import ConnectDecoder, widest_type
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.format import Format, Steps, Values


def connect_json_format(_value: ValueSettings) -> Format:
    """Needs no settings."""
    return ConnectJson()


class ConnectJson:
    """JSON in the envelope of Kafka Connect's JsonConverter."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return ConnectDecoder(schema, steps, names)

    def columns(self, values: Values) -> Schema:
        return connect_columns(widest_type(values()))

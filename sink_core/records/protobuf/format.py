"""Protobuf, with the schemas of a registry."""

from __future__ import annotations

from pyiceberg.schema import Schema

from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.columns.budget import within_budget
from calve.sink_core.records.columns.checked import Unfit
from calve.sink_core.records.columns.names import Names
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.format import Format, Steps
from calve.sink_core.records.decode.registry import ById, Registry
from calve.sink_core.records.decode.registry_format import RegistryFormat
from calve.sink_core.records.protobuf.columns import protobuf_columns
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.protobuf.schema import Messages, proto_file


def protobuf_format(value: ValueSettings) -> Format:
    """With the registry of the settings."""
    assert value.registry is not None
    registry = Registry(value.registry)
    files = ById(registry, "PROTOBUF", lambda found: proto_file(found.name, found.text, found.references))
    messages = Messages(files, lambda schema: within_budget(schema, lambda of: protobuf_columns(of, Unfit(()))))

    def decoder(schema: Schema, _: object, steps: Steps, names: Names) -> Decoder:
        return ProtobufDecoder(schema, messages, steps, names)

    return RegistryFormat(registry, messages, decoder, protobuf_columns)

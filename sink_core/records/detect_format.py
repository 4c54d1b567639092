"""Which format a topic's values seem to be of: a proposal for a new pipeline file, never a verdict on a record."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import RegistrySettings, ValueSettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.connect.decoder import widest_type
from calve.sink_core.records.decode.registry import HEADER_BYTES, Registry, schema_id

_TYPES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}


def recognised(values: Sequence[bytes], registry: RegistrySettings | None) -> ValueSettings:
    """The format of most values: one with a registry by their headers, Connect's envelope, else JSON.

    Raises ConfigError if they need a registry and none is given or it has none of their schemas, and Unreachable.
    """
    framed = {value[:HEADER_BYTES] for value in values if len(value) >= HEADER_BYTES and value[0] == 0}
    if 2 * sum(value[:HEADER_BYTES] in framed for value in values) > len(values):
        return _registered(sorted(framed, reverse=True), registry)
    envelopes = sum(widest_type([value]) is not None for value in values)
    return ValueSettings("connect_json" if 2 * envelopes > len(values) else "json")


def _registered(headers: Sequence[bytes], registry: RegistrySettings | None) -> ValueSettings:
    if registry is None:
        raise ConfigError(
            "the values are in Confluent's wire format, whose schemas are in a registry",
            hint="give it with --registry: its address, or its name in a connections.yaml that is there",
            code=Code.WHICH_REGISTRY,
        )
    asked = Registry(registry)
    for header in headers:
        kind = asked.kind(schema_id(header))
        if kind in _TYPES:
            return ValueSettings(_TYPES[kind], registry)
    raise ConfigError(
        f"registry {registry.name} has none of the schemas that the sampled values name",
        hint="give the registry that their producer uses with --registry",
        code=Code.WHICH_REGISTRY,
    )

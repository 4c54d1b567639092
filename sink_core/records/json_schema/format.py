"""JSON whose schemas are in a registry."""

from __future__ import annotations

from calve.sink_core.config.reading import ValueSettings
from calve.sink_core.records.decode.format import Format
from calve.sink_core.records.decode.registry import ById, Registry
from calve.sink_core.records.decode.registry_format import RegistryFormat
from calve.sink_core.records.json_schema.columns import json_schema_columns
from calve.sink_core.records.json_schema.decoder import JsonSchemaDecoder, json_schema


def json_schema_format(value: ValueSettings) -> Format:
    """With the registry of the settings."""
    assert value.registry is not None
    registry = Registry(value.registry)
    schemas = ById(registry, "JSON", lambda found: json_schema(found.name, found.text, found.references))
    return RegistryFormat(registry, schemas, JsonSchemaDecoder, json_schema_columns)

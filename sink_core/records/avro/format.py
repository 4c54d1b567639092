"""Avro, with the schemas of a registry or of a file."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import SchemaFile, ValueSettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.avro.columns import avro_columns
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import WriterSchema, writer_schema
from calve.sink_core.records.columns.budget import within_budget
from calve.sink_core.records.columns.checked import Unfit
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.format import Format, Steps, Values
from calve.sink_core.records.decode.registry import ById, Registered, Registry
from calve.sink_core.records.decode.registry_format import RegistryFormat


def avro_format(value: ValueSettings) -> Format:
    """With the registry or the file of the settings. Raises ConfigError for a file that is no Avro schema."""
    if value.schema is not None:
        return FixedAvro(fixed_schema(value.schema))
    assert value.registry is not None
    registry = Registry(value.registry)
    return RegistryFormat(registry, ById(registry, "AVRO", _registered), AvroDecoder, avro_columns)


def _registered(found: Registered) -> WriterSchema:
    schema = writer_schema(found.name, found.text, [text for _, text in found.references])
    return within_budget(schema, lambda of: avro_columns(of, Unfit(())))


@dataclass(frozen=True, slots=True)
class FixedAvro:
    """Plain Avro of one schema."""

    schema: WriterSchema

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return AvroDecoder(schema, OneSchema(self.schema), steps, names)

    def columns(self, values: Values) -> Schema:  # noqa: ARG002 - the schema is known
        return avro_columns(self.schema)


def fixed_schema(file: SchemaFile) -> WriterSchema:
    """The schema in a file. Raises ConfigError if it is none."""
    try:
        return writer_schema(file.path, file.text)
    except ValueError as error:
        raise ConfigError(
            f"{file.setting}: {file.path}: {error}", hint="correct the schema file", code=Code.SCHEMA_FILE
        ) from None

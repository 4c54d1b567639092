"""The formats of values: for each, how a table's decoder is made and which columns a new table gets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyiceberg.schema import Schema

from sink_core.config.effective import SchemaFile, ValueSettings
from sink_core.config.pipeline import EvolveStep
from sink_core.decode.decoded import Decoder
from sink_core.decode.json import JsonDecoder
from sink_core.decode.names import EXACT, Names
from sink_core.decode.whole import WholeDecoder, whole_schema
from sink_core.errors import ConfigError
from sink_core.tables.infer import infer_schema

if TYPE_CHECKING:
    from sink_core.decode.avro_schema import WriterSchema
    from sink_core.registry import Registry

Steps = Collection[EvolveStep]
Sample = Callable[[], list[bytes]]
"""Values of records of the source, read when they are asked for."""


class Format(Protocol):
    """A format of values; what its decoders share, such as a registry's schemas, lives as long as it."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        """A decoder for a table whose columns, `_kafka` left out, are those of `schema`, found under `names`; what it
        may be given more is of `steps`."""
        ...

    def columns(self, sample: Sample) -> Schema:
        """The columns of a new table for such values. Raises ConfigError, Unreachable."""
        ...


def format_of(value: ValueSettings) -> Format:
    """The format that a pipeline's values have. Raises ConfigError for a schema file that is no Avro schema."""
    # Imported where they are needed: a task that reads JSON starts without an HTTP client and fastavro.
    if value.registry is not None:
        from sink_core.registry import Registry

        return RegistryAvro(Registry(value.registry))
    if value.schema is not None:
        return FixedAvro(fixed_schema(value.schema))
    return Json() if value.type == "json" else Whole(value.type)


class Json:
    """One JSON object per value."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return JsonDecoder(schema, steps, names)

    def columns(self, sample: Sample) -> Schema:
        return infer_schema(sample())


@dataclass(frozen=True, slots=True)
class Whole:
    """The value as it is: `string` or `bytes`."""

    type: str

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:  # noqa: ARG002 - one column is all
        return WholeDecoder(schema, self.type)

    def columns(self, sample: Sample) -> Schema:  # noqa: ARG002 - whatever the values are
        return whole_schema(self.type)


@dataclass(frozen=True, slots=True)
class FixedAvro:
    """Plain Avro of one schema."""

    schema: WriterSchema

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        from sink_core.decode.avro import AvroDecoder, OneSchema

        return AvroDecoder(schema, OneSchema(self.schema), steps, names)

    def columns(self, sample: Sample) -> Schema:  # noqa: ARG002 - the schema is known
        from sink_core.tables.avro_columns import avro_columns

        return avro_columns(self.schema)


@dataclass(frozen=True, slots=True)
class RegistryAvro:
    """Avro in Confluent's wire format, with the schemas of a registry."""

    registry: Registry

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        from sink_core.decode.avro import AvroDecoder

        return AvroDecoder(schema, self.registry, steps, names)

    def columns(self, sample: Sample) -> Schema:
        from sink_core.tables.avro_columns import avro_columns

        return avro_columns(self.registry.newest(sample()))


def fixed_schema(file: SchemaFile) -> WriterSchema:
    """The schema in a file. Raises ConfigError if it is none."""
    from sink_core.decode.avro_schema import writer_schema

    try:
        return writer_schema(file.path, file.text)
    except ValueError as error:
        raise ConfigError(f"source.value.schema: {file.path}: {error}", hint="correct the schema file") from None

"""The formats of values: for each, how a table's decoder is made and which columns a new table gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pyiceberg.schema import Schema

from calve.sink_core.config.reading import FormatsByTopic, SchemaFile, ValueSettings
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.error_codes.files import FORMATS_DIFFER
from calve.sink_core.error_codes.records import SCHEMA_FILE
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.decoded import Decoder
from calve.sink_core.records.decode.framing import Framing, Named
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.raw_value import WholeDecoder, whole_schema

if TYPE_CHECKING:
    from calve.sink_core.records.avro.schema import WriterSchema
    from calve.sink_core.records.registry import Registry

S = TypeVar("S", bound=Named)
Steps = Collection[EvolveStep]

Values = Callable[[], list[bytes]]
"""Values of records of one format, read when they are asked for."""
Sample = Callable[[], Mapping[str, list[bytes]]]
"""Values of records by topic, read when they are asked for."""


class Format(Protocol):
    """A format of values; what its decoders share, such as a registry's schemas, lives as long as it."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        """A decoder for a table whose columns, `_kafka` left out, are those of `schema`, found under `names`; what it
        may be given more is of `steps`."""
        ...

    def columns(self, values: Values) -> Schema:
        """The columns of a new table for such values. Raises ConfigError, Unreachable."""
        ...


def format_of(value: ValueSettings) -> Format:
    """The format that a pipeline's values have. Raises ConfigError for a schema file that is no Avro schema."""
    # Imported where they are needed: a task that reads JSON starts without an HTTP client and fastavro.
    if value.registry is not None:
        from calve.sink_core.records.registry import Registry

        return _WITH_REGISTRY[value.type](Registry(value.registry))
    if value.schema is not None:
        return FixedAvro(fixed_schema(value.schema))
    return _WITHOUT_SCHEMAS[value.type]() if value.type in _WITHOUT_SCHEMAS else Whole(value.type)


class Formats:
    """The formats that the values of topics have, each made once."""

    def __init__(self, readings: FormatsByTopic) -> None:
        self._readings, self._made = readings, dict[ValueSettings, Format]()

    def of(self, topic: str) -> Format:
        """That of a topic's values. Raises ConfigError as `FormatsByTopic.of` and `format_of` do."""
        settings = self._readings.of(topic).value
        if settings not in self._made:
            self._made[settings] = format_of(settings)
        return self._made[settings]

    def by_topics(self, topics: Iterable[str]) -> list[tuple[Format, list[str]]]:
        """Each format of these topics, with those that have it."""
        found: dict[int, tuple[Format, list[str]]] = {}
        for topic in topics:
            found.setdefault(id(self.of(topic)), (self.of(topic), []))[1].append(topic)
        return list(found.values())

    def columns(self, topics: Iterable[str], sample: Sample) -> Schema:
        """The columns of a new table for values of these topics. Raises ConfigError, Unreachable."""
        found = self.by_topics(topics)
        if len(found) > 1:
            raise ConfigError(
                f"topics {found[0][1][0]} and {found[1][1][0]} have values of different formats; "
                "which columns hold both can't be told",
                hint="name the columns under auto_create.columns, or a table for each under topics",
                code=FORMATS_DIFFER,
            )
        value_format = found[0][0] if found else format_of(self._readings.default.value)
        wanted = found[0][1] if found else []
        return value_format.columns(lambda: [value for topic in wanted for value in sample().get(topic, ())])


class Json:
    """One JSON object per value."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return JsonDecoder(schema, steps, names)

    def columns(self, values: Values) -> Schema:
        return infer_schema(values())


class ConnectJson:
    """JSON in the envelope of Kafka Connect's JsonConverter."""

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        from calve.sink_core.records.connect.decoder import ConnectDecoder

        return ConnectDecoder(schema, steps, names)

    def columns(self, values: Values) -> Schema:
        from calve.sink_core.records.connect.columns import connect_columns
        from calve.sink_core.records.connect.decoder import widest_type

        return connect_columns(widest_type(values()))


_WITHOUT_SCHEMAS: dict[str, Callable[[], Format]] = {"json": Json, "connect_json": ConnectJson}


@dataclass(frozen=True, slots=True)
class Whole:
    """The value as it is: `string` or `bytes`."""

    type: str

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:  # noqa: ARG002 - one column is all
        return WholeDecoder(schema, self.type)

    def columns(self, values: Values) -> Schema:  # noqa: ARG002 - whatever the values are
        return whole_schema(self.type)


@dataclass(frozen=True, slots=True)
class FixedAvro:
    """Plain Avro of one schema."""

    schema: WriterSchema

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema

        return AvroDecoder(schema, OneSchema(self.schema), steps, names)

    def columns(self, values: Values) -> Schema:  # noqa: ARG002 - the schema is known
        from calve.sink_core.records.avro.columns import avro_columns

        return avro_columns(self.schema)


@dataclass(frozen=True, slots=True)
class RegistryFormat(Generic[S]):
    """Values in Confluent's wire format, with the schemas of a registry."""

    registry: Registry
    schemas: Framing[S]
    make_decoder: Callable[[Schema, Framing[S], Steps, Names], Decoder]
    columns_of: Callable[[S], Schema]

    def decoder(self, schema: Schema, steps: Steps = (), names: Names = EXACT) -> Decoder:
        return self.make_decoder(schema, self.schemas, steps, names)

    def columns(self, values: Values) -> Schema:
        return self.columns_of(self.newest(values()))

    def newest(self, values: list[bytes]) -> S:
        """The schema of the values that was registered last. Raises ConfigError if there is none, Unreachable."""
        from calve.sink_core.records.registry import newest

        return newest(self.schemas, values)


def _avro(registry: Registry) -> Format:
    from calve.sink_core.records.avro.columns import avro_columns
    from calve.sink_core.records.avro.decoder import AvroDecoder
    from calve.sink_core.records.avro.schema import writer_schema
    from calve.sink_core.records.registry import ById

    schemas = ById(
        registry, "AVRO", lambda found: writer_schema(found.name, found.text, [text for _, text in found.references])
    )
    return RegistryFormat(registry, schemas, AvroDecoder, avro_columns)


def _json_schema(registry: Registry) -> Format:
    from calve.sink_core.records.json_schema.columns import json_schema_columns
    from calve.sink_core.records.json_schema.decoder import JsonSchemaDecoder, json_schema
    from calve.sink_core.records.registry import ById

    schemas = ById(registry, "JSON", lambda found: json_schema(found.name, found.text, found.references))
    return RegistryFormat(registry, schemas, JsonSchemaDecoder, json_schema_columns)


def _protobuf(registry: Registry) -> Format:
    from calve.sink_core.records.protobuf.columns import protobuf_columns
    from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
    from calve.sink_core.records.protobuf.schema import Messages, proto_file
    from calve.sink_core.records.registry import ById

    messages = Messages(ById(registry, "PROTOBUF", lambda found: proto_file(found.name, found.text, found.references)))

    def decoder(schema: Schema, _: object, steps: Steps, names: Names) -> Decoder:
        return ProtobufDecoder(schema, messages, steps, names)

    return RegistryFormat(registry, messages, decoder, protobuf_columns)


_WITH_REGISTRY: dict[str, Callable[[Registry], Format]] = {
    "avro": _avro,
    "json_schema": _json_schema,
    "protobuf": _protobuf,
}


def fixed_schema(file: SchemaFile) -> WriterSchema:
    """The schema in a file. Raises ConfigError if it is none."""
    from calve.sink_core.records.avro.schema import writer_schema

    try:
        return writer_schema(file.path, file.text)
    except ValueError as error:
        raise ConfigError(
            f"{file.setting}: {file.path}: {error}", hint="correct the schema file", code=SCHEMA_FILE
        ) from None

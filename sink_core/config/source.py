"""Where a pipeline reads, from where on, and in which format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import AwareDatetime, BaseModel, Discriminator, Field, Tag, model_validator

from sink_core.config.connections import KafkaConnection, Name
from sink_core.config.fields import Regex, TopicName
from sink_core.config.model import Model, comes_with, refusal

# Parts of an error's location that start with "<" name a branch of a union, not a key, and are not shown.
NAMED, INLINE = Tag("<name>"), Tag("<inline>")


def name_or_inline(given: object) -> str:
    """Which of the two a connection is given as."""
    return "<inline>" if isinstance(given, Mapping | BaseModel) else "<name>"


def _start_kind(given: object) -> str:
    if isinstance(given, StartAtGroup) or (isinstance(given, Mapping) and "group" in cast(Mapping[str, object], given)):
        return "<group>"
    return "<timestamp>" if isinstance(given, Mapping | StartAtTimestamp) else "<word>"


KafkaChoice = Annotated[Annotated[Name, NAMED] | Annotated[KafkaConnection, INLINE], Discriminator(name_or_inline)]


class StartAtTimestamp(Model):
    """Begin at the first record at or after a time."""

    timestamp: AwareDatetime
    """ISO 8601 with a zone, such as `2026-01-31T00:00:00Z`."""


class StartAtGroup(Model):
    """Begin where another consumer group stands."""

    group: str = Field(min_length=1)
    """The consumer group whose committed offsets are taken over once."""


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("<word>")]
    | Annotated[StartAtTimestamp, Tag("<timestamp>")]
    | Annotated[StartAtGroup, Tag("<group>")],
    Discriminator(_start_kind),
]


class KeyFormat(Model):
    """How a record's key is read."""

    type: Annotated[Literal["string", "bytes", "none"], comes_with("formats", "json", "avro", "protobuf")] = "string"
    """`none` leaves the key out."""


_REGISTERED = ("json_schema", "protobuf")


def _or_registered(key: str) -> str:
    return f", {' or '.join(_REGISTERED)}" if key == "registry" else ""


class ValueFormat(Model):
    """How a record's value is read."""

    type: Literal["json", "connect_json", "json_schema", "avro", "protobuf", "string", "bytes"] = "json"
    """`json`: one JSON object per record. `connect_json`: one within the envelope of Kafka Connect's JsonConverter,
    `{"schema": …, "payload": …}`. `json_schema`, `protobuf`: an object, a message, with its schema in `registry`.
    `avro`: one Avro record, with the schema of `registry` or of `schema`. `string` (UTF-8) and `bytes`: all of the
    value, in a column `value`."""

    registry: Name | None = None
    """For `avro`, `json_schema` and `protobuf`: a name from `connections.yaml`. Each record begins with the id of its
    schema there (Confluent's wire format)."""

    schema_file: str | None = Field(default=None, alias="schema", min_length=1)
    """For `avro`: an `.avsc` file, its path relative to the pipeline file's folder. Records are plain Avro of this
    schema, without a header."""

    @model_validator(mode="after")
    def _one_schema(self) -> Self:
        given = [key for key, value in (("registry", self.registry), ("schema", self.schema_file)) if value is not None]
        if self.type == "avro" and len(given) != 1:
            raise refusal(f"avro needs exactly one of registry and schema, {'both' if given else 'neither'} given")
        if self.type in _REGISTERED and given != ["registry"]:
            raise refusal(f"{self.type} needs registry{', without schema' if self.schema_file else ''}")
        if self.type not in ("avro", *_REGISTERED) and given:
            raise refusal(f"{given[0]} goes with type: avro{_or_registered(given[0])}; leave it out for {self.type}")
        return self


class Source(Model):
    """What is read."""

    kafka: KafkaChoice
    """A name from `connections.yaml`, or a mapping of librdkafka's keys."""

    topics: tuple[TopicName, ...] = ()
    """The topics to read, each once."""

    topics_regex: Regex | None = None
    """Read all topics whose whole name matches, beside those of `topics`. Looked for again before each batch: a new one
    is read from its beginning; one that is gone keeps its position. Named groups, such as `shop\\.(?P<entity>\\w+)`,
    can stand in names of `tables`. Topics of Kafka and of Calve (`__…`, `calve.….control`) never match."""

    start: Start = "earliest"
    """Where a new pipeline begins: `earliest`, `latest`, `{timestamp: …}` or `{group: …}`. Read once, at first use; a
    partition that appears later starts at its beginning."""

    key: KeyFormat = KeyFormat()
    """How a record's key is read."""

    value: ValueFormat = ValueFormat()
    """How a record's value is read."""

    @model_validator(mode="after")
    def _some_topics(self) -> Self:
        if not self.topics and self.topics_regex is None:
            raise refusal("needs topics, or topics_regex; neither given")
        return self

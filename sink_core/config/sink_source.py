"""What a sink reads, and in which format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from pydantic import Field, model_validator

from calve.sink_core.config.connections import Name
from calve.sink_core.config.fields import Regex, TopicName
from calve.sink_core.config.formats import FORMATS, NO_KEY, KeyType, Schemas, ValueType
from calve.sink_core.config.model import Location, Model, refusal, refuse_at
from calve.sink_core.config.topics import Topics, covers


def _is_whole(kind: str) -> bool:
    return kind == NO_KEY or FORMATS[kind].whole


def _schemas(kind: str) -> Schemas:
    return "none" if kind == NO_KEY else FORMATS[kind].schemas


class KeyFormat(Model):
    """How a record's key is read: for the SQL of tables' transforms, and where `key: kafka` makes it a table's key."""

    type: KeyType = "bytes"
    """As for values; `none` leaves the key out. A key that isn't of the type makes its record a dead letter. `bytes`
    are not looked into."""

    registry: Name | None = None
    """As for values."""

    schema_file: str | None = Field(default=None, alias="schema", min_length=1)
    """As for values."""

    as_type: str | None = Field(default=None, alias="as", min_length=1)
    """The Iceberg type that the key is read as: `struct<id: long, region: string>` for one with fields, `long`,
    `string`, … for one that is a single value. Needed for all types but `bytes`, `string` and `none`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        _check_schemas(self.type, self.registry, self.schema_file)
        if (self.as_type is None) != _is_whole(self.type):
            said = f"{self.type} is read as it is; leave as out" if self.as_type else f"{self.type} needs as"
            raise refusal(said)
        return self


class ValueFormat(Model):
    """How a record's value is read."""

    type: ValueType = "json"
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
        _check_schemas(self.type, self.registry, self.schema_file)
        return self


def _check_schemas(kind: str, registry: str | None, schema_file: str | None) -> None:
    """Refuse a format whose schemas come from nowhere, or from a place it has no use for."""
    given = [key for key, value in (("registry", registry), ("schema", schema_file)) if value is not None]
    schemas = _schemas(kind)
    if schemas == "registry or file" and len(given) != 1:
        raise refusal(f"{kind} needs exactly one of registry and schema, {'both' if given else 'neither'} given")
    if schemas == "registry" and given != ["registry"]:
        raise refusal(f"{kind} needs registry{', without schema' if schema_file else ''}")
    if schemas == "none" and given:
        takes = ("registry or file", "registry") if given[0] == "registry" else ("registry or file",)
        names = [row.name for wanted in takes for row in FORMATS.values() if row.schemas == wanted]
        listed = names[0] + (f", {' or '.join(names[1:])}" if names[1:] else "")
        raise refusal(f"{given[0]} goes with type: {listed}; leave it out for {kind}")


class TopicFormats(Model):
    """Topics whose keys or values are read in another way than those of the others."""

    topics: tuple[TopicName, ...] = ()
    """Topics of the source by name."""

    topics_regex: Regex | None = None
    """All topics of the source whose whole name matches, beside those of `topics`. No topic may be of two entries."""

    key: KeyFormat | None = None
    """How their keys are read. Default: `source.key`."""

    value: ValueFormat | None = None
    """How their values are read. Default: `source.value`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.topics and self.topics_regex is None:
            raise refusal("needs topics, or topics_regex; neither given")
        if self.key is None and self.value is None:
            raise refusal("needs key, or value; neither given")
        return self

    def covers(self, topic: str) -> bool:
        """Whether a topic's records are read so."""
        return covers(topic, self.topics, self.topics_regex)


def _types(default: str, others: Iterable[tuple[TopicFormats, str]], topics: Iterable[str] | None) -> set[str]:
    others = list(others)
    if topics is None:
        return {default, *(kind for _, kind in others)}
    return {next((kind for entry, kind in others if entry.covers(topic)), default) for topic in topics}


class Source(Topics):
    """What is read."""

    key: KeyFormat = KeyFormat()
    """How a record's key is read."""

    value: ValueFormat = ValueFormat()
    """How a record's value is read."""

    formats: tuple[TopicFormats, ...] = ()
    """Topics whose keys or values are read in another way."""

    @model_validator(mode="after")
    def _formats_fit(self) -> Self:
        refuse_at("Source", (*self._foreign(), *self._read_twice()))
        return self

    def value_types(self, topics: Iterable[str] | None = None) -> set[str]:
        """The types of values that there may be, of all topics or of these."""
        return _types(self.value.type, [(entry, entry.value.type) for entry in self.formats if entry.value], topics)

    def key_types(self, topics: Iterable[str] | None = None) -> set[str]:
        """Those of keys."""
        return _types(self.key.type, [(entry, entry.key.type) for entry in self.formats if entry.key], topics)

    def _foreign(self) -> Iterator[tuple[Location, str, object]]:
        for index, entry in enumerate(self.formats):
            at = ("formats", index)
            for topic in entry.topics:
                if not self.has(topic):
                    yield (*at, "topics"), f"{topic} is not a topic of source", None
            if entry.topics_regex and not self.topics_regex and not any(map(entry.covers, self.topics)):
                yield (*at, "topics_regex"), "no topic of source matches", None

    def _read_twice(self) -> Iterator[tuple[Location, str, object]]:
        """Topics of two entries, as far as they are named; `config/reading` refuses those found at run time."""
        for topic in dict.fromkeys([*self.topics, *(topic for entry in self.formats for topic in entry.topics)]):
            found = [index for index, entry in enumerate(self.formats) if entry.covers(topic)]
            if len(found) > 1:
                yield ("formats", found[1]), f"{topic} is of formats.{found[0]} as well; leave it out of one", None

"""How the records of each topic are read: formats with the registries and schema files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.connections import RegistryConnection
from calve.sink_core.config.sink_source import KeyFormat, Source, TopicFormats, ValueFormat
from calve.sink_core.errors import ConfigError

BINARY = "binary"
"""What keys are that nobody looks into."""
_KEYS_AS = {"string": "string", "bytes": BINARY, "none": BINARY}


@dataclass(frozen=True)
class RegistrySettings:
    """A schema registry; `properties` are those of confluent-kafka's client, unresolved."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class SchemaFile:
    """An Avro schema as it stands in the file at `path`; `setting` names it."""

    path: str
    text: str = field(repr=False)
    setting: str = "source.value.schema"


@dataclass(frozen=True)
class ValueSettings:
    """How values are read: as `type` says, with the schemas of a registry or that of a file where it needs any."""

    type: str = "json"
    registry: RegistrySettings | None = None
    schema: SchemaFile | None = None


@dataclass(frozen=True)
class KeySettings:
    """How keys are read: as values of `format`, and as what Iceberg type. `setting` names it."""

    format: ValueSettings = ValueSettings("bytes")
    as_type: str = BINARY
    setting: str = "source.key"

    @property
    def is_read(self) -> bool:
        """Whether a key can be bad."""
        return self.format.type not in ("bytes", "none")


@dataclass(frozen=True)
class TopicFormat:
    """How records are read."""

    key: KeySettings = KeySettings()
    value: ValueSettings = ValueSettings()


@dataclass(frozen=True)
class FormatsByTopic:
    """How the records of a source are read: as `default`, but those of topics that one of `others` covers."""

    default: TopicFormat = TopicFormat()
    others: tuple[tuple[TopicFormats, TopicFormat], ...] = ()

    def of(self, topic: str) -> TopicFormat:
        """How records of a topic are read. Raises ConfigError if two entries cover it."""
        found = [(index, reading) for index, (entry, reading) in enumerate(self.others) if entry.covers(topic)]
        if len(found) > 1:
            raise ConfigError(
                f"source.formats: topic {topic} is of entries {found[0][0]} and {found[1][0]}",
                hint="narrow topics_regex of one of them",
                code=Code.TWO_FORMATS,
            )
        return found[0][1] if found else self.default

    def key_type(self, topics: Iterable[str], wanted_by: str) -> str:
        """The Iceberg type that keys of these topics are read as; bytes for several types, unless somebody wants to
        look at them: then raises ConfigError, which begins with `wanted_by`. Raises as `of` does.
        """
        found = {key.as_type: key.setting for key in (self.of(topic).key for topic in topics)}
        if len(found) <= 1:
            return next(iter(found), self.default.key.as_type)
        if wanted_by:
            raise ConfigError(
                f"{wanted_by}: keys are {' and '.join(found)}, by {' and '.join(found.values())}",
                hint="name the topics of one of them under the table's topics",
                code=Code.KEYS_DIFFER,
            )
        return BINARY

    @property
    def values(self) -> tuple[ValueSettings, ...]:
        """Each way in which values are read, once."""
        return tuple(dict.fromkeys(reading.value for reading in self._all))

    @property
    def read_keys(self) -> tuple[KeySettings, ...]:
        """Each way in which keys are read, once, those left out that are not looked into."""
        return tuple(dict.fromkeys(reading.key for reading in self._all if reading.key.is_read))

    @property
    def formats(self) -> tuple[ValueSettings, ...]:
        """Those of values, then those of keys."""
        return tuple(dict.fromkeys([*self.values, *(key.format for key in self.read_keys)]))

    @property
    def registries(self) -> tuple[RegistrySettings, ...]:
        """Each registry that is asked, once."""
        return tuple(dict.fromkeys(of.registry for of in self.formats if of.registry is not None))

    @property
    def _all(self) -> Iterable[TopicFormat]:
        return (self.default, *(reading for _, reading in self.others))


ALIKE = FormatsByTopic()
"""All topics have JSON under keys that nobody looks into."""


def readings(source: Source, registries: Mapping[str, RegistryConnection], folder: Path) -> FormatsByTopic:
    """With the connections that the source names and the schema files below `folder`. Raises ConfigError for a file
    that isn't there."""

    def read(of: KeyFormat | ValueFormat, setting: str) -> ValueSettings:
        registry = RegistrySettings(of.registry, registries[of.registry].properties) if of.registry else None
        schema = _schema_file(folder / of.schema_file, f"{setting}.schema") if of.schema_file else None
        return ValueSettings(of.type, registry, schema)

    def read_key(of: KeyFormat, setting: str) -> KeySettings:
        return KeySettings(read(of, setting), of.as_type or _KEYS_AS[of.type], setting)

    default = TopicFormat(read_key(source.key, "source.key"), read(source.value, "source.value"))
    others: list[tuple[TopicFormats, TopicFormat]] = []
    for index, entry in enumerate(source.formats):
        at = f"source.formats.{index}"
        key = default.key if entry.key is None else read_key(entry.key, f"{at}.key")
        others.append((entry, TopicFormat(key, read(entry.value, f"{at}.value") if entry.value else default.value)))
    return FormatsByTopic(default, tuple(others))


def _schema_file(path: Path, setting: str) -> SchemaFile:
    """The file as it is now: executors get its text, and need not have the file."""
    try:
        return SchemaFile(str(path), path.read_text(encoding="utf-8"), setting)
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"{setting}: {path}: {said}",
            hint="name an .avsc file by its path from the pipeline file",
            code=Code.SCHEMA_FILE,
        ) from None

"""The formats of values: what each is made by, and which topics have which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.formats import FORMATS
from calve.sink_core.config.reading import FormatsByTopic, ValueSettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.decode.format import Format

Sample = Callable[[], Mapping[str, list[bytes]]]
"""Values of records by topic, read when they are asked for."""


def format_of(value: ValueSettings) -> Format:
    """The format that a pipeline's values have. Raises ConfigError for a schema file that is no Avro schema."""
    # Imported where it is needed: a task that reads JSON starts without an HTTP client and fastavro.
    module, _, name = FORMATS[value.type].make.partition(":")
    return getattr(import_module(module), name)(value)


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
                code=Code.FORMATS_DIFFER,
            )
        value_format = found[0][0] if found else format_of(self._readings.default.value)
        wanted = found[0][1] if found else []
        return value_format.columns(lambda: [value for topic in wanted for value in sample().get(topic, ())])

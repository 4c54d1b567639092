"""A pipeline made of its file and the connections that the file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from calve.sink_core.config.connections import CatalogConnection, Connections, KafkaConnection, SparkSettings
from calve.sink_core.config.effective import INLINE, CatalogSettings, KafkaSettings, Pipeline
from calve.sink_core.config.model import Location
from calve.sink_core.config.pipeline import PipelineConfig
from calve.sink_core.config.problems import nearest
from calve.sink_core.config.reading import readings
from calve.sink_core.config.source import KeyFormat, Source, ValueFormat
from calve.sink_core.errors import ConfigError

INLINE_CATALOG = "calve"


def names_of_connections(config: PipelineConfig) -> Iterator[str]:
    """The connections that a pipeline names rather than to write them itself."""
    chosen = (config.source.kafka, config.catalog, config.spark, *(of.registry for _, of in _registered(config.source)))
    return (name for name in chosen if isinstance(name, str))


def unknown_names(config: PipelineConfig, connections: Connections) -> Iterator[tuple[Location, str]]:
    """Where the pipeline names a connection that isn't there, and what to say about it."""
    choices: tuple[tuple[Location, object, Mapping[str, object]], ...] = (
        (("source", "kafka"), config.source.kafka, connections.kafka),
        *((at, of.registry, connections.registry) for at, of in _registered(config.source)),
        (("catalog",), config.catalog, connections.catalog),
        (("spark",), config.spark, connections.spark),
    )
    for location, chosen, known in choices:
        if isinstance(chosen, str) and chosen not in known:
            names = ", ".join(sorted(known)) or "none"
            hint = f"; {nearest(chosen, known)}" if known else ""
            section = location[-1]
            yield location, f"connections.yaml has no {section} named {chosen!r} (it has {names}){hint}"


def _registered(source: Source) -> Iterator[tuple[Location, KeyFormat | ValueFormat]]:
    """Where a registry may be named."""
    entries = [(("source",), source.key, source.value)]
    entries += [(("source", "formats", i), entry.key, entry.value) for i, entry in enumerate(source.formats)]
    for at, key, value in entries:
        for name, of in (("key", key), ("value", value)):
            if of is not None:
                yield (*at, name, "registry"), of


def assemble(config: PipelineConfig, connections: Connections, path: Path) -> Pipeline:
    """Put a pipeline and its connections together. Raises ConfigError if it names one, or a file, that isn't there."""
    unknown = [f"{path}: {'.'.join(map(str, at))}: {text}" for at, text in unknown_names(config, connections)]
    if unknown:
        raise ConfigError("\n".join(unknown), hint="correct the name, or add the connection to connections.yaml")
    spark = config.spark if isinstance(config.spark, SparkSettings) else connections.spark[config.spark]
    return Pipeline(
        config=config,
        deployment=connections.deployment,
        kafka=_kafka(config.source.kafka, connections.kafka),
        catalog=_catalog(config.catalog, connections.catalog),
        spark=spark,
        path=path,
        readings=readings(config.source, connections.registry, path.parent),
    )


def _kafka(chosen: str | KafkaConnection, known: Mapping[str, KafkaConnection]) -> KafkaSettings:
    name, connection = (chosen, known[chosen]) if isinstance(chosen, str) else (INLINE, chosen)
    return KafkaSettings(name, connection.properties)


def _catalog(chosen: str | CatalogConnection, known: Mapping[str, CatalogConnection]) -> CatalogSettings:
    name, connection = (chosen, known[chosen]) if isinstance(chosen, str) else (INLINE_CATALOG, chosen)
    return CatalogSettings(connection.name or name, connection.properties, dict(connection.spark))

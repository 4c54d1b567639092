"""The connections that a pipeline file names: whether they are there, and what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import (
    CatalogConnection,
    Connections,
    DatabaseConnection,
    HudiConnection,
    KafkaConnection,
    SparkSettings,
)
from calve.sink_core.config.effective import INLINE, CatalogSettings, DatabaseSettings, HudiSettings, KafkaSettings
from calve.sink_core.config.model import Location
from calve.sink_core.config.problems import nearest

INLINE_CATALOG = "calve"


def names_of_connections(config: PipelineConfig) -> Iterator[str]:
    """The connections that a pipeline names rather than to write them itself."""
    return (chosen for _, chosen in config.connections() if isinstance(chosen, str))


def unknown_names(config: PipelineConfig, connections: Connections) -> Iterator[tuple[Location, str]]:
    """Where the pipeline names a connection that isn't there, and what to say about it."""
    for location, chosen in config.connections():
        section = str(location[-1])
        known = cast(Mapping[str, object], getattr(connections, section))
        if isinstance(chosen, str) and chosen not in known:
            names = ", ".join(sorted(known)) or "none"
            hint = f"; {nearest(chosen, known)}" if known else ""
            yield location, f"connections.yaml has no {section} named {chosen!r} (it has {names}){hint}"


def kafka_settings(chosen: str | KafkaConnection, connections: Connections) -> KafkaSettings:
    name, connection = (chosen, connections.kafka[chosen]) if isinstance(chosen, str) else (INLINE, chosen)
    return KafkaSettings(name, connection.properties)


def catalog_settings(chosen: str | CatalogConnection, connections: Connections) -> CatalogSettings:
    name, connection = (chosen, connections.catalog[chosen]) if isinstance(chosen, str) else (INLINE_CATALOG, chosen)
    return CatalogSettings(connection.name or name, connection.properties, dict(connection.spark))


def hudi_settings(chosen: str | HudiConnection | None, connections: Connections) -> HudiSettings | None:
    if chosen is None:
        return None
    name, connection = (chosen, connections.hudi[chosen]) if isinstance(chosen, str) else (INLINE, chosen)
    return HudiSettings(name, connection.warehouse, connection.properties, connection.spark)


def database_settings(chosen: str | DatabaseConnection, connections: Connections) -> DatabaseSettings:
    name, connection = (chosen, connections.database[chosen]) if isinstance(chosen, str) else (INLINE, chosen)
    return DatabaseSettings(name, connection.properties)


def spark_settings(chosen: str | SparkSettings, connections: Connections) -> SparkSettings:
    return connections.spark[chosen] if isinstance(chosen, str) else chosen

"""The files of a new pipeline, from a sample of its topic: for `calve init` and `dg scaffold defs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from calve.sink_core.config.reading import RegistrySettings, ValueSettings

SAMPLE_RECORDS = 1_000
SAMPLE_TIMEOUT_S = 10.0
NEW_KAFKA, NEW_CATALOG, NEW_REGISTRY = "main", "lake", "main"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for. `kafka_keys` are librdkafka's for a new `connections.yaml`, as are `catalog_uri`,
    `warehouse` and `deployment`; `kafka`, `catalog` and `registry` name what one that is there has. For a new one
    `registry` is an address.
    """

    topic: str
    kafka_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    table: str | None = None
    name: str | None = None
    catalog_uri: str | None = None
    warehouse: str | None = None
    kafka: str | None = None
    catalog: str | None = None
    registry: str | None = None
    deployment: str = "dev"


@dataclass(frozen=True, slots=True)
class NewPipeline:
    """The texts of the pipeline file and of `connections.yaml`, None if one is there; and what they rest on."""

    pipeline: str
    connections: str | None
    columns: int
    sampled: int
    value_type: str


@dataclass(frozen=True, slots=True)
class _Connected:
    kafka_name: str
    catalog_name: str
    kafka: Mapping[str, Any]
    text: str | None
    registry: RegistrySettings | None


def new_pipeline(wanted: Wanted, shared: Path, lake: Path, *, anew: bool = False) -> NewPipeline:
    """Reads some records of the topic, by the connections in `shared` if that is there and not to be made `anew`.

    A new catalog without an address is a SQLite file in `lake`. Raises ConfigError, Unreachable.
    """
    from calve.sink_core.sink import scaffold

    connected = _existing(shared, wanted) if shared.exists() and not anew else _new(lake, wanted)
    columns, sampled, value = _infer(connected.kafka, wanted.topic, connected.registry)
    name = wanted.name or scaffold.name_from(wanted.topic)
    draft = scaffold.Draft(
        name,
        wanted.topic,
        wanted.table or f"raw.{name}",
        connected.kafka_name,
        connected.catalog_name,
        columns,
        sampled,
        value,
    )
    return NewPipeline(scaffold.pipeline_text(draft), connected.text, len(columns.fields), sampled, value.type)


def _existing(path: Path, wanted: Wanted) -> _Connected:
    from calve.sink_core.config.reading import RegistrySettings
    from calve.sink_core.sink import scaffold

    if wanted.kafka_keys or wanted.catalog_uri or wanted.warehouse:
        raise ConfigError(
            f"{path} is there and says how to connect",
            hint="leave out --bootstrap, --kafka-config, --catalog-uri and --warehouse, or write a new one with "
            "--force and --bootstrap",
            code=Code.WOULD_OVERWRITE,
        )
    connections = scaffold.read_connections(path)
    kafka_name = scaffold.only_name("kafka", connections.kafka, wanted.kafka)
    catalog_name = scaffold.only_name("catalog", connections.catalog, wanted.catalog)
    asked = wanted.registry is not None or len(connections.registry) == 1
    of_schemas = scaffold.only_name("registry", connections.registry, wanted.registry) if asked else None
    return _Connected(
        kafka_name,
        catalog_name,
        connections.kafka[kafka_name].properties,
        None,
        RegistrySettings(of_schemas, connections.registry[of_schemas].properties) if of_schemas else None,
    )


def _new(lake: Path, wanted: Wanted) -> _Connected:
    from calve.sink_core.config.reading import RegistrySettings
    from calve.sink_core.sink import scaffold

    if "bootstrap.servers" not in wanted.kafka_keys:
        raise ConfigError(
            "where is Kafka?", hint="give --bootstrap HOST:PORT; `calve broker start` starts one here", code=Code.OPTION
        )
    of_schemas = RegistrySettings(NEW_REGISTRY, {"url": wanted.registry}) if wanted.registry else None
    text = scaffold.connections_text(
        wanted.kafka_keys,
        scaffold.catalog_keys(lake, wanted.catalog_uri, wanted.warehouse),
        deployment=wanted.deployment,
        kafka_name=NEW_KAFKA,
        catalog_name=NEW_CATALOG,
        registry=of_schemas,
    )
    return _Connected(NEW_KAFKA, NEW_CATALOG, wanted.kafka_keys, text, of_schemas)


def _infer(
    kafka: Mapping[str, Any], topic: str, registry: RegistrySettings | None
) -> tuple[Schema, int, ValueSettings]:
    """The columns of the topic's values, how many were looked at, and their format."""
    from calve.sink_core.kafka.source import sample
    from calve.sink_core.records.detect_format import recognised
    from calve.sink_core.records.formats import format_of

    records = sample(kafka, topic, SAMPLE_RECORDS, timeout_s=SAMPLE_TIMEOUT_S)
    values = [record.value for record in records if record.value is not None]
    if not values:
        raise ConfigError(
            f"topic {topic} holds no record to infer columns from",
            hint="run this again once it has records",
            code=Code.NO_SAMPLE,
        )
    value = recognised(values, registry)
    return format_of(value).columns(lambda: values), len(values), value

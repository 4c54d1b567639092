"""A pipeline with everything it names: the value the rest of Calve works with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sink_core.config.connections import (
    CatalogConnection,
    Connections,
    KafkaConnection,
    RegistryConnection,
    SparkSettings,
)
from sink_core.config.model import Location
from sink_core.config.pipeline import AutoCreate, EvolveStep, HistoryChoice, PipelineConfig, Transform, ValueFormat
from sink_core.config.problems import nearest
from sink_core.config.references import redact, resolve, without_user_info
from sink_core.errors import ConfigError

INLINE = "inline"
INLINE_CATALOG = "calve"


@dataclass(frozen=True)
class KafkaSettings:
    """A Kafka cluster; `properties` are librdkafka's with references unresolved (`references.resolve` opens them)."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class CatalogSettings:
    """An Iceberg catalog; `properties` are pyiceberg's, `spark` those of Iceberg's Spark catalog, both unresolved."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class RegistrySettings:
    """A schema registry; `properties` are those of confluent-kafka's client, unresolved."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class SchemaFile:
    """An Avro schema as it stands in the file at `path`."""

    path: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class ValueSettings:
    """How values are read: `json`, `string`, `bytes`, or `avro` with the schemas of a registry or that of a file."""

    type: str = "json"
    registry: RegistrySettings | None = None
    schema: SchemaFile | None = None


@dataclass(frozen=True)
class TableSettings:
    """A table that is fed, with `table_defaults` applied."""

    name: str
    mode: str
    auto_create: AutoCreate | None
    kafka_column: bool
    target_file_bytes: int
    evolve: tuple[EvolveStep, ...]
    owned: bool | None
    history: HistoryChoice | None = None
    transform: Transform | None = None


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file and the connections it names. `path` is the file it came from."""

    config: PipelineConfig
    deployment: str
    kafka: KafkaSettings
    catalog: CatalogSettings
    spark: SparkSettings
    path: Path
    value: ValueSettings = ValueSettings()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def group(self) -> str:
        """The source group; its committed offsets are the positions."""
        return f"calve.{self.deployment}.{self.config.first_name}"

    @property
    def control_topic(self) -> str:
        return f"{self.group}.control"

    @property
    def transactional_id(self) -> str:
        return f"{self.group}.publisher"

    @property
    def tag(self) -> str:
        """The Iceberg tag on this pipeline's last snapshot of a table."""
        return f"calve-{self.config.first_name}"

    @property
    def ledger_table(self) -> str:
        return self.config.ledger_table

    @property
    def dead_letter_table(self) -> str:
        return self.config.dead_letter_table

    @property
    def table_names(self) -> tuple[str, ...]:
        """Every table a batch can feed: data tables, ledger and dead letters."""
        return (*(table.name for table in self.tables), self.ledger_table, self.dead_letter_table)

    def require_tables(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a table that this pipeline does not feed."""
        foreign = sorted(set(names) - set(self.table_names))
        if foreign:
            raise ConfigError(
                f"table {foreign[0]} is not fed by pipeline {self.name}",
                hint=f"name one of {', '.join(self.table_names)}",
            )

    @cached_property
    def tables(self) -> tuple[TableSettings, ...]:
        """The data tables in the file's order; ledger and dead letters are not among them."""
        defaults = self.config.table_defaults
        return tuple(
            TableSettings(
                name=table.name,
                mode=table.mode,
                auto_create=table.auto_create,
                kafka_column=defaults.kafka_column if table.kafka_column is None else table.kafka_column,
                target_file_bytes=table.target_file_size or defaults.target_file_size,
                evolve=defaults.evolve if table.evolve is None else table.evolve,
                owned=table.owned,
                history=table.history,
                transform=table.transform,
            )
            for table in self.config.tables
        )

    @cached_property
    def catalog_fingerprint(self) -> str:
        """Which catalog this is, as a text that is the same on every host and holds no secret.

        Type, uri and warehouse without user info and query, and the catalog's name. References in uri and warehouse are
        resolved, since hosts may spell them differently; raises ConfigError if a variable is not set.
        """
        properties = self.catalog.properties
        places = resolve({key: properties[key] for key in ("uri", "warehouse") if key in properties})
        kind = properties.get("type") or properties.get("py-catalog-impl")
        shown = {key: without_user_info(str(value)).rstrip("/") for key, value in places.items()}
        return " ".join(f"{key}={value}" for key, value in {"name": self.catalog.name, "type": kind, **shown}.items())

    @cached_property
    def config_fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of the pipeline file with its defaults, secrets left out."""
        canonical = json.dumps(self._shown_config(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def _shown_config(self) -> dict[str, Any]:
        shown = _dump(self.config)
        for section, key in ((shown["source"], "kafka"), (shown, "catalog"), (shown, "spark")):
            # Only connections hold secrets; a column may well be called token.
            section[key] = redact(section[key]) if isinstance(section[key], dict) else section[key]
        return shown

    def describe(self) -> dict[str, Any]:
        """Both files as they take effect, defaults filled in and secrets hidden, and the names derived from them."""
        catalog = {"name": self.catalog.name, **self.catalog.properties, "spark": dict(self.catalog.spark)}
        registry = self.value.registry
        return {
            "pipeline": self._shown_config(),
            "connections": {
                "deployment": self.deployment,
                "kafka": {self.kafka.name: redact(self.kafka.properties)},
                **({"registry": {registry.name: redact(registry.properties)}} if registry else {}),
                "catalog": {_key(self.config.catalog): redact(catalog)},
                "spark": {_key(self.config.spark): redact(_dump(self.spark))},
            },
            "derived": {
                "group": self.group,
                "control_topic": self.control_topic,
                "transactional_id": self.transactional_id,
                "tag": self.tag,
                "ledger_table": self.ledger_table,
                "dead_letter_table": self.dead_letter_table,
                "config_fingerprint": self.config_fingerprint,
            },
        }


def unknown_names(config: PipelineConfig, connections: Connections) -> Iterator[tuple[Location, str]]:
    """Where the pipeline names a connection that isn't there, and what to say about it."""
    choices: tuple[tuple[Location, object, Mapping[str, object]], ...] = (
        (("source", "kafka"), config.source.kafka, connections.kafka),
        (("source", "value", "registry"), config.source.value.registry, connections.registry),
        (("catalog",), config.catalog, connections.catalog),
        (("spark",), config.spark, connections.spark),
    )
    for location, chosen, known in choices:
        if isinstance(chosen, str) and chosen not in known:
            names = ", ".join(sorted(known)) or "none"
            hint = f"; {nearest(chosen, known)}" if known else ""
            section = location[-1]
            yield location, f"connections.yaml has no {section} named {chosen!r} (it has {names}){hint}"


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
        value=_value(config.source.value, connections.registry, path.parent),
    )


def _kafka(chosen: str | KafkaConnection, known: Mapping[str, KafkaConnection]) -> KafkaSettings:
    name, connection = (chosen, known[chosen]) if isinstance(chosen, str) else (INLINE, chosen)
    return KafkaSettings(name, connection.properties)


def _value(chosen: ValueFormat, known: Mapping[str, RegistryConnection], folder: Path) -> ValueSettings:
    registry = RegistrySettings(chosen.registry, known[chosen.registry].properties) if chosen.registry else None
    schema = _schema_file(folder / chosen.schema_file) if chosen.schema_file else None
    return ValueSettings(chosen.type, registry, schema)


def _schema_file(path: Path) -> SchemaFile:
    """The file as it is now: executors get its text, and need not have the file."""
    try:
        return SchemaFile(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"source.value.schema: {path}: {said}", hint="name an .avsc file by its path from the pipeline file"
        ) from None


def _catalog(chosen: str | CatalogConnection, known: Mapping[str, CatalogConnection]) -> CatalogSettings:
    name, connection = (chosen, known[chosen]) if isinstance(chosen, str) else (INLINE_CATALOG, chosen)
    return CatalogSettings(connection.name or name, connection.properties, dict(connection.spark))


def _dump(model: PipelineConfig | SparkSettings) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _key(chosen: object) -> str:
    return chosen if isinstance(chosen, str) else INLINE

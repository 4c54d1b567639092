"""`calve init`: a pipeline file from a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson
from orchestration.cli.output import say, say_json, working
from sink_core.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from sink_core.config.reading import RegistrySettings, ValueSettings

SAMPLE_RECORDS = 1_000
SAMPLE_TIMEOUT_S = 10.0
PIPELINE_FILE, CONNECTIONS_FILE = "pipeline.yaml", "connections.yaml"
NEW_KAFKA, NEW_CATALOG, NEW_REGISTRY = "main", "lake", "main"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "init")(init)


@dataclass(frozen=True, slots=True)
class _Connected:
    """The connections to use: names, librdkafka's keys, and the text of `connections.yaml` if it is to be written."""

    kafka_name: str
    catalog_name: str
    kafka: Mapping[str, Any]
    text: str | None
    registry: RegistrySettings | None


def init(
    topic: Annotated[str, typer.Option("--topic", metavar="T", help="The topic to read.", show_default=False)],
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="For a new connections.yaml.")
    ] = None,
    kafka_config: Annotated[
        list[str] | None,
        typer.Option("--kafka-config", metavar="KEY=VALUE", help="librdkafka's; secrets as KEY='${ENV:NAME}'."),
    ] = None,
    table: Annotated[str | None, typer.Option(metavar="NS.TABLE", help="Default: raw.<name>.")] = None,
    name: Annotated[str | None, typer.Option(help="The pipeline's name. Default: from the topic.")] = None,
    directory: Annotated[Path, typer.Option("--directory", metavar="D", help="Where the files go.")] = Path(),
    catalog_uri: Annotated[str | None, typer.Option(help="Default: a SQLite catalog in D/lake.")] = None,
    warehouse: Annotated[str | None, typer.Option(help="Default: D/lake/warehouse.")] = None,
    kafka: Annotated[str | None, typer.Option(help="Which one of a connections.yaml that is there.")] = None,
    catalog: Annotated[str | None, typer.Option(help="Which one of a connections.yaml that is there.")] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL|NAME", help="Of schemas; its name if connections.yaml is there."),
    ] = None,
    deployment: Annotated[str, typer.Option(help="For a new connections.yaml.")] = "dev",
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sample a topic and write a commented pipeline file for it, and connections.yaml where there is none."""
    from sink_core import scaffold

    target, shared = directory / PIPELINE_FILE, directory / CONNECTIONS_FILE
    if target.exists() and not force:
        raise ConfigError(f"{target} is there already", hint="give another --directory, or --force to write over it")
    given_kafka = _kafka_keys(bootstrap, kafka_config or [])
    given_catalog = {"uri": catalog_uri, "warehouse": warehouse}
    if shared.exists() and not (force and given_kafka):
        connected = _existing(shared, kafka, catalog, registry, {**given_kafka, **given_catalog})
    else:
        connected = _new(directory, given_kafka, given_catalog, registry, deployment)
    with working(f"sampling {topic}"):
        columns, sampled, value = _infer(connected.kafka, topic, connected.registry)
    name = name or scaffold.name_from(topic)
    text = scaffold.pipeline_text(
        scaffold.Draft(
            name, topic, table or f"raw.{name}", connected.kafka_name, connected.catalog_name, columns, sampled, value
        )
    )
    written = _write({target: text, shared: connected.text})
    if as_json:
        say_json(
            {
                "written": [str(path) for path in written],
                "columns": len(columns.fields),
                "sampled": sampled,
                "value": value.type,
            }
        )
        return
    for path in written:
        say(f"wrote {path}")
    say(f"{len(columns.fields)} columns inferred from {sampled:,} records of {value.type}; next: calve check {target}")


def _kafka_keys(bootstrap: str | None, pairs: Sequence[str]) -> dict[str, str]:
    keys = {"bootstrap.servers": bootstrap} if bootstrap else {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator and value):
            raise ConfigError("--kafka-config takes KEY=VALUE", hint="for example security.protocol=SASL_SSL")
        keys[key] = value
    return keys


def _existing(
    path: Path, kafka: str | None, catalog: str | None, registry: str | None, given: Mapping[str, str | None]
) -> _Connected:
    from sink_core import scaffold
    from sink_core.config.reading import RegistrySettings

    if any(given.values()):
        raise ConfigError(
            f"{path} is there and says how to connect",
            hint="leave out --bootstrap, --kafka-config, --catalog-uri and --warehouse, or write a new one with "
            "--force and --bootstrap",
        )
    connections = scaffold.read_connections(path)
    kafka_name = scaffold.only_name("kafka", connections.kafka, kafka)
    catalog_name = scaffold.only_name("catalog", connections.catalog, catalog)
    asked = registry is not None or len(connections.registry) == 1
    of_schemas = scaffold.only_name("registry", connections.registry, registry) if asked else None
    return _Connected(
        kafka_name,
        catalog_name,
        connections.kafka[kafka_name].properties,
        None,
        RegistrySettings(of_schemas, connections.registry[of_schemas].properties) if of_schemas else None,
    )


def _new(
    directory: Path,
    kafka: Mapping[str, str],
    catalog: Mapping[str, str | None],
    registry: str | None,
    deployment: str,
) -> _Connected:
    from sink_core import scaffold
    from sink_core.config.reading import RegistrySettings

    if "bootstrap.servers" not in kafka:
        raise ConfigError("where is Kafka?", hint="give --bootstrap HOST:PORT; `calve broker start` starts one here")
    of_schemas = RegistrySettings(NEW_REGISTRY, {"url": registry}) if registry else None
    text = scaffold.connections_text(
        kafka,
        scaffold.catalog_keys(directory.absolute() / "lake", catalog["uri"], catalog["warehouse"]),
        deployment=deployment,
        kafka_name=NEW_KAFKA,
        catalog_name=NEW_CATALOG,
        registry=of_schemas,
    )
    return _Connected(NEW_KAFKA, NEW_CATALOG, kafka, text, of_schemas)


def _infer(
    kafka: Mapping[str, Any], topic: str, registry: RegistrySettings | None
) -> tuple[Schema, int, ValueSettings]:
    """The columns of the topic's values, how many were looked at, and their format."""
    from sink_core.formats import format_of
    from sink_core.kafka.source import sample
    from sink_core.recognise import recognised

    records = sample(kafka, topic, SAMPLE_RECORDS, timeout_s=SAMPLE_TIMEOUT_S)
    values = [record.value for record in records if record.value is not None]
    if not values:
        raise ConfigError(
            f"topic {topic} holds no record to infer columns from", hint="run this again once it has records"
        )
    value = recognised(values, registry)
    return format_of(value).columns(lambda: values), len(values), value


def _write(texts: Mapping[Path, str | None]) -> list[Path]:
    written = [path for path, text in texts.items() if text is not None]
    for path, text in texts.items():
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return written

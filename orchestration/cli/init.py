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

SAMPLE_RECORDS = 1_000
SAMPLE_TIMEOUT_S = 10.0
PIPELINE_FILE, CONNECTIONS_FILE = "pipeline.yaml", "connections.yaml"
NEW_KAFKA, NEW_CATALOG = "main", "lake"


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
        connected = _existing(shared, kafka, catalog, {**given_kafka, **given_catalog})
    else:
        connected = _new(directory, given_kafka, given_catalog, deployment)
    with working(f"sampling {topic}"):
        columns, sampled = _infer(connected.kafka, topic)
    name = name or scaffold.name_from(topic)
    text = scaffold.pipeline_text(
        scaffold.Draft(
            name, topic, table or f"raw.{name}", connected.kafka_name, connected.catalog_name, columns, sampled
        )
    )
    written = _write({target: text, shared: connected.text})
    if as_json:
        say_json({"written": [str(path) for path in written], "columns": len(columns.fields), "sampled": sampled})
        return
    for path in written:
        say(f"wrote {path}")
    say(f"{len(columns.fields)} columns inferred from {sampled:,} records; next: calve check {target}")


def _kafka_keys(bootstrap: str | None, pairs: Sequence[str]) -> dict[str, str]:
    keys = {"bootstrap.servers": bootstrap} if bootstrap else {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator and value):
            raise ConfigError("--kafka-config takes KEY=VALUE", hint="for example security.protocol=SASL_SSL")
        keys[key] = value
    return keys


def _existing(path: Path, kafka: str | None, catalog: str | None, given: Mapping[str, str | None]) -> _Connected:
    from sink_core import scaffold

    if any(given.values()):
        raise ConfigError(
            f"{path} is there and says how to connect",
            hint="leave out --bootstrap, --kafka-config, --catalog-uri and --warehouse, or write a new one with "
            "--force and --bootstrap",
        )
    connections = scaffold.read_connections(path)
    kafka_name = scaffold.only_name("kafka", connections.kafka, kafka)
    catalog_name = scaffold.only_name("catalog", connections.catalog, catalog)
    return _Connected(kafka_name, catalog_name, connections.kafka[kafka_name].properties, None)


def _new(directory: Path, kafka: Mapping[str, str], catalog: Mapping[str, str | None], deployment: str) -> _Connected:
    from sink_core import scaffold

    if "bootstrap.servers" not in kafka:
        raise ConfigError("where is Kafka?", hint="give --bootstrap HOST:PORT; `calve broker start` starts one here")
    text = scaffold.connections_text(
        kafka,
        scaffold.catalog_keys(directory.absolute() / "lake", catalog["uri"], catalog["warehouse"]),
        deployment=deployment,
        kafka_name=NEW_KAFKA,
        catalog_name=NEW_CATALOG,
    )
    return _Connected(NEW_KAFKA, NEW_CATALOG, kafka, text)


def _infer(kafka: Mapping[str, Any], topic: str) -> tuple[Schema, int]:
    from sink_core.kafka.source import sample
    from sink_core.tables.infer import infer_schema

    records = sample(kafka, topic, SAMPLE_RECORDS, timeout_s=SAMPLE_TIMEOUT_S)
    values = [record.value for record in records if record.value is not None]
    if not values:
        raise ConfigError(
            f"topic {topic} holds no record to infer columns from", hint="run this again once it has records"
        )
    return infer_schema(values), len(values)


def _write(texts: Mapping[Path, str | None]) -> list[Path]:
    written = [path for path, text in texts.items() if text is not None]
    for path, text in texts.items():
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return written

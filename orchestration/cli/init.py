"""`calve init`: a pipeline file from a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

PIPELINE_FILE, CONNECTIONS_FILE = "pipeline.yaml", "connections.yaml"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "init")(init)


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
    from calve.orchestration.new_pipeline import Wanted, new_pipeline

    target, shared = directory / PIPELINE_FILE, directory / CONNECTIONS_FILE
    if target.exists() and not force:
        raise ConfigError(
            f"{target} is there already",
            hint="give another --directory, or --force to write over it",
            code=Code.WOULD_OVERWRITE,
        )
    keys = _kafka_keys(bootstrap, kafka_config or [])
    wanted = Wanted(topic, keys, table, name, catalog_uri, warehouse, kafka, catalog, registry, deployment)
    with working(f"sampling {topic}"):
        made = new_pipeline(wanted, shared, directory.absolute() / "lake", anew=force and bool(keys))
    written = _write({target: made.pipeline, shared: made.connections})
    if as_json:
        say_json(
            {
                "written": [str(path) for path in written],
                "columns": made.columns,
                "sampled": made.sampled,
                "value": made.value_type,
            }
        )
        return
    for path in written:
        say(f"wrote {path}")
    inferred = f"{made.columns} columns inferred from {made.sampled:,} records of {made.value_type}"
    say(f"{inferred}; next: calve check {target}")


def _kafka_keys(bootstrap: str | None, pairs: Sequence[str]) -> dict[str, str]:
    keys = {"bootstrap.servers": bootstrap} if bootstrap else {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator and value):
            raise ConfigError(
                "--kafka-config takes KEY=VALUE", hint="for example security.protocol=SASL_SSL", code=Code.OPTION
            )
        keys[key] = value
    return keys


def _write(texts: Mapping[Path, str | None]) -> list[Path]:
    written = [path for path, text in texts.items() if text is not None]
    for path, text in texts.items():
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return written

"""`calve`: the command line. Commands import what is heavy when they run, so that `--help` is quick."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from calve.orchestration.cli import (
    broker,
    check,
    dead_letters,
    drill,
    explain,
    groups,
    hudi,
    init,
    inspect,
    maintain,
    pause,
    positions,
    replay,
    resolve,
    run,
    spark,
)
from calve.orchestration.cli.boundary import DEBUG

app = typer.Typer(
    name="calve",
    help="Kafka, Iceberg, Hudi and databases joined by bounded jobs, every record exactly once.",
    no_args_is_help=True,
    add_completion=False,
    # Tracebacks are for faults of Calve itself; local variables may hold secrets.
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"calve {version('calve')}")
        raise typer.Exit


@app.callback()
def calve(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Kafka, Iceberg, Hudi and databases joined by bounded jobs, every record exactly once."""
    if debug:
        os.environ[DEBUG] = "1"


for module in (init, check, run, inspect, pause, resolve, replay, maintain, drill, explain):
    module.register(app)
app.add_typer(broker.app, name="broker")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(groups.app, name="groups")
app.add_typer(hudi.app, name="hudi")
app.add_typer(positions.app, name="positions")
app.add_typer(spark.app, name="spark")

"""`calve spark`: what makes Spark start faster."""

from __future__ import annotations

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson
from orchestration.cli.output import say, say_json, working

app = typer.Typer(help="What makes Spark start faster.")


@app.callback()
def spark() -> None:
    """What makes Spark start faster."""


@command(app, "prepare")
def prepare(as_json: AsJson = False) -> None:
    """Archive the classes that each start of Spark on this machine loads; once per Python environment."""
    from spark_jobs import class_archive

    with working("starting Spark") as status:
        path, written = class_archive.prepare(status.update)
    if as_json:
        say_json({"archive": str(path), "written": written})
    else:
        say(f"{path}: {'written' if written else 'there already'}")

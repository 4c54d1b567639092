"""`calve config`: a pipeline file as it takes effect."""

from __future__ import annotations

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from calve.orchestration.cli.output import say, say_json


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "config")(config)


def config(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show both files as they take effect: defaults filled in, secrets hidden, derived names added."""
    import yaml

    from calve.sink_core.config.load import load

    described = load(file, connections).describe()
    if as_json:
        say_json(described)
    else:
        say(yaml.safe_dump(described, sort_keys=False, allow_unicode=True).rstrip())

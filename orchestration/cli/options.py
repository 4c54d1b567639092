"""Arguments and options that several commands take, the pipeline that they name, and who gives them."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calve.sink_core.config.sink_pipeline import SinkPipeline

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file, or a Dagster defs.yaml.", show_default=False)
]
ConnectionsFile = Annotated[
    Path | None,
    typer.Option("--connections", metavar="PATH", help="Instead of connections.yaml beside FILE.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, errors too.")]


def user() -> str:
    """user@host, as events say it; the user's number where it has no name, as in some containers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def sink(command: str, file: Path, connections: Path | None) -> SinkPipeline:
    """The pipeline of `file`, for a command that only sinks have. Raises ConfigError as `load_as` does."""
    from calve.sink_core.config.load import load_as
    from calve.sink_core.config.sink_pipeline import SinkPipeline

    return load_as(SinkPipeline, file, connections, whose=f"calve {command}")

"""Arguments and options that several commands take, and who gives these."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

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

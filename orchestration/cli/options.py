"""Arguments and options that several commands take."""

from __future__ import annotations

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

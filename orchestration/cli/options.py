"""Arguments and options that several commands take, the pipeline that they name, and who gives them."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.sink_core import imports
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from calve.sink_core.config.effective import Pipeline
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.control.plane import AnyPlane

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


def control_plane(file: Path, connections: Path | None) -> AnyPlane:
    """The control plane of the pipeline of `file`, for a command that every kind has. Raises as its kind's does."""
    from calve.orchestration.cli.kinds import KINDS
    from calve.sink_core.config.load import load

    pipeline = load(file, connections)
    return KINDS[pipeline.kind].open(pipeline)


def of_kind(command: str, file: Path, connections: Path | None) -> tuple[Any, Callable[..., Any]]:
    """The pipeline of `file`, and what its kind does for a command that several kinds may have.

    Raises ConfigError for a kind that doesn't have it.
    """
    from calve.orchestration.cli.kinds import KINDS
    from calve.sink_core.config.load import load

    pipeline = load(file, connections)
    kind = KINDS[pipeline.kind]
    if command not in kind.does:
        raise _lacking(command, pipeline)
    return pipeline, kind.body(command)


def sink(command: str, file: Path, connections: Path | None) -> SinkPipeline:
    """The pipeline of `file`, for a command that only sinks have. Raises ConfigError for one of another kind."""
    from calve.sink_core.config.load import load
    from calve.sink_core.config.sink_pipeline import SinkPipeline

    pipeline = load(file, connections)
    if not isinstance(pipeline, SinkPipeline):
        raise _lacking(command, pipeline)
    with imports.for_good():
        # Each of them opens one.
        import_module("calve.sink_core.sink.loop.session")
    return pipeline


def mirror(command: str, file: Path, connections: Path | None) -> MirrorPipeline:
    """As `sink`, for a command that only mirrors have."""
    from calve.sink_core.config.load import load
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline

    pipeline = load(file, connections)
    if not isinstance(pipeline, MirrorPipeline):
        raise _lacking(command, pipeline)
    return pipeline


def _lacking(command: str, pipeline: Pipeline) -> ConfigError:
    from calve.orchestration.cli.kinds import KINDS

    has = ", ".join(KINDS[pipeline.kind].commands)
    message = f"{pipeline.path}: kind {pipeline.kind} has no `{command}`"
    return ConfigError(message, hint=f"it has {has}", code=Code.WRONG_KIND)

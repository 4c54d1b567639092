"""`calve positions`: to see them, to set them, and to have them as a file.

What a kind does for them is called with the pipeline: `show` returns `Positions`, `export` a positions file; `set`
gets the wanted offsets, `set --partition` source partition and offset as they were written, or a file in their place,
`reset` a source partition, or None for all; each of these `reason`, `yes` and `as_json` besides; `import` what `export`
wrote and `as_json`.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind
from calve.orchestration.cli.output import say_json, say_table, working
from calve.orchestration.cli.positions_table import Positions
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

app = typer.Typer(help="The positions of a pipeline: what they are, other ones, and as a file for another pipeline.")


Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the control topic.")]


@command(app, "show")
def show(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show the next offset of each source partition, and what the source has. Writes nothing.

    Of a pipeline of kind source: its source offsets, and what the control log knows of them.
    """
    pipeline, body = of_kind("positions show", file, connections)
    with working("reading positions"):
        found: Positions = body(pipeline)
    if as_json:
        say_json({"pipeline": pipeline.name, "positions": [asdict(part) for part in found.parts]})
    else:
        say_table("positions", found.columns, found.rows)


@command(app, "set")
def set_(
    file: PipelineFile,
    positions: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC/P:OFFSET…", help="The next offset to read of a partition.", show_default=False),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="JSON", help="Of a source: a source partition.", show_default=False)
    ] = None,
    offset: Annotated[str | None, typer.Option(metavar="JSON", help="Its offset.", show_default=False)] = None,
    origin: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="Of a source: what `show --json` printed.", show_default=False),
    ] = None,
    reason: Reason = "by hand",
    yes: Yes = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Set positions of a paused pipeline. Says first what would be read again or never, and asks.

    Exit code 2: the pipeline isn't paused, or the source doesn't have such an offset; nothing was changed. 3: a run was
    faster.
    """
    from calve.orchestration.times import one_offset

    if (partition is None) != (offset is None) or [bool(positions), partition is not None, origin is not None].count(
        True
    ) != 1:
        raise ConfigError(
            "positions are given in one way: as TOPIC/P:OFFSET, by --partition and --offset, or by --from",
            hint="give one of them",
            code=Code.OPTION,
        )
    if not positions:
        pipeline, body = of_kind("positions set --partition", file, connections)
        body(pipeline, partition, offset, origin, reason=reason, yes=yes, as_json=as_json)
        return
    wanted = dict(one_offset(text) for text in positions)
    pipeline, body = of_kind("positions set", file, connections)
    body(pipeline, wanted, reason=reason, yes=yes, as_json=as_json)


@command(app, "reset")
def reset(
    file: PipelineFile,
    partition: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The source partition. Default: all of them.", show_default=False),
    ] = None,
    reason: Reason = "by hand",
    yes: Yes = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Take away the offsets of a paused source: it is read from its beginning. Says first which, and asks.

    Exit codes are those of `set`.
    """
    pipeline, body = of_kind("positions reset", file, connections)
    body(pipeline, partition, reason=reason, yes=yes, as_json=as_json)


class Other(StrEnum):
    """Another program that has positions."""

    MM2 = "mm2"


@command(app, "export")
def export(
    file: PipelineFile,
    to: Annotated[
        Other | None,
        typer.Option("--to", help="Of a mirror: have MirrorMaker 2 go on where it ended.", show_default=False),
    ] = None,
    yes: Yes = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Write the positions to standard output, as JSON; or, of a paused mirror, to where MirrorMaker 2 has its own."""
    if to is not None:
        pipeline, body = of_kind("positions export --to", file, connections)
        body(pipeline, yes=yes, as_json=as_json)
        return
    pipeline, body = of_kind("positions export", file, connections)
    say_json(body(pipeline).model_dump(mode="json"))


@command(app, "import")
def import_(
    file: PipelineFile,
    positions: Annotated[
        Path | None, typer.Argument(metavar="POSITIONS", help="What `export` wrote.", show_default=False)
    ] = None,
    origin: Annotated[
        Other | None,
        typer.Option("--from", help="In place of a file: where MirrorMaker 2 ended.", show_default=False),
    ] = None,
    yes: Yes = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Begin a pipeline that has never published with these positions, in place of `source.start`."""
    if (positions is None) == (origin is None):
        raise ConfigError("positions come from a file or by --from", hint="give one of the two", code=Code.OPTION)
    if positions is None:
        pipeline, body = of_kind("positions import --from", file, connections)
        body(pipeline, yes=yes, as_json=as_json)
        return
    from calve.sink_core.control.positions_file import read

    pipeline, body = of_kind("positions import", file, connections)
    body(pipeline, read(positions), as_json=as_json)

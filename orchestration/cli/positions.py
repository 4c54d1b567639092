"""`calve positions`: to see them, to set them, and to have them as a file.

What a kind does for them is called with the pipeline: `show` returns the partitions, `export` a positions file; `set`
gets the wanted offsets and `by`, `yes` and `as_json`; `import` what `export` wrote and `as_json`.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind
from calve.orchestration.cli.output import say_json, say_table, working
from calve.sink_core.error_codes.files import OPTION
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from calve.sink_core.control.status import PartitionStatus

app = typer.Typer(help="The positions of a pipeline: what they are, other ones, and as a file for another pipeline.")


@command(app, "show")
def show(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show the next offset of each source partition, and what the source has. Writes nothing."""
    pipeline, body = of_kind("positions show", file, connections)
    with working("reading positions"):
        partitions: tuple[PartitionStatus, ...] = body(pipeline)
    if as_json:
        say_json({"pipeline": pipeline.name, "positions": [asdict(part) for part in partitions]})
        return
    columns = ["topic", "partition", "position", "log start", "end", "lag"]
    say_table("positions", columns, [_row(part) for part in partitions])


@command(app, "set")
def set_(
    file: PipelineFile,
    positions: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC/P:OFFSET…", help="The next offset to read of a partition.", show_default=False),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the control topic.")] = "by hand",
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Set positions of a paused pipeline. Says first what would be read again or never, and asks.

    Exit code 2: the pipeline isn't paused, or the source doesn't have such an offset; nothing was changed. 3: a run was
    faster.
    """
    from calve.orchestration.times import one_offset

    wanted = dict(one_offset(text) for text in positions)
    pipeline, body = of_kind("positions set", file, connections)
    body(pipeline, wanted, reason=reason, yes=yes, as_json=as_json)


class Other(StrEnum):
    """Another program that has positions."""

    MM2 = "mm2"


Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


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
        raise ConfigError("positions come from a file or by --from", hint="give one of the two", code=OPTION)
    if positions is None:
        pipeline, body = of_kind("positions import --from", file, connections)
        body(pipeline, yes=yes, as_json=as_json)
        return
    from calve.sink_core.control.positions_file import read

    pipeline, body = of_kind("positions import", file, connections)
    body(pipeline, read(positions), as_json=as_json)


def _row(part: PartitionStatus) -> list[str]:
    position = "-" if part.position is None else f"{part.position:,}"
    return [part.topic, str(part.partition), position, *(f"{n:,}" for n in (part.log_start, part.end, part.lag))]

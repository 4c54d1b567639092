"""`calve positions`: to see them, to set them, and to have them as a file.

What a kind does for them is called with the pipeline: `show` returns the partitions, `export` a positions file; `set`
gets the wanted offsets and `by`, `yes` and `as_json`; `import` what `export` wrote and `as_json`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind
from calve.orchestration.cli.output import say_json, say_table, working

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


@command(app, "export")
def export(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:  # noqa: ARG001 - it always is
    """Write the positions to standard output, as JSON."""
    pipeline, body = of_kind("positions export", file, connections)
    say_json(body(pipeline).model_dump(mode="json"))


@command(app, "import")
def import_(
    file: PipelineFile,
    positions: Annotated[Path, typer.Argument(metavar="POSITIONS", help="What `export` wrote.", show_default=False)],
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Begin a pipeline that has never published with these positions, in place of `source.start`."""
    from calve.sink_core.control.positions_file import read

    pipeline, body = of_kind("positions import", file, connections)
    body(pipeline, read(positions), as_json=as_json)


def _row(part: PartitionStatus) -> list[str]:
    position = "-" if part.position is None else f"{part.position:,}"
    return [part.topic, str(part.partition), position, *(f"{n:,}" for n in (part.log_start, part.end, part.lag))]

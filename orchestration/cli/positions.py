"""`calve positions`: the positions as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, sink
from calve.orchestration.cli.output import say, say_json, working

app = typer.Typer(help="The positions of a pipeline as a file, to begin another one where it ended.")


@command(app, "export")
def export(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:  # noqa: ARG001 - it always is
    """Write the positions to standard output, as JSON."""
    from calve.sink_core.sink import positions_file
    from calve.sink_core.sink.loop.session import Session

    with working("reading positions"), Session.open(sink("positions export", file, connections)) as session:
        exported = positions_file.export(session)
    say_json(exported.model_dump(mode="json"))


@command(app, "import")
def import_(
    file: PipelineFile,
    positions: Annotated[Path, typer.Argument(metavar="POSITIONS", help="What `export` wrote.", show_default=False)],
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Begin a pipeline that has never published with these positions, in place of `source.start`."""
    from calve.sink_core.control.positions_file import read
    from calve.sink_core.sink import positions_file
    from calve.sink_core.sink.loop.session import Session

    pipeline, wanted = sink("positions import", file, connections), read(positions)
    with working("putting positions in place"), Session.open(pipeline) as session:
        starts = positions_file.begin_with(session, wanted)
    if as_json:
        placed = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in starts.items()]
        say_json({"pipeline": pipeline.name, "positions": placed})
    else:
        say(f"{pipeline.name} begins at {len(starts):,} positions of pipeline {wanted.pipeline}")

"""What `calve positions` does with a sink."""

from __future__ import annotations

from calve.orchestration.cli.output import say, say_json, working
from calve.orchestration.cli.positions_table import Positions, of_topics
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.positions_file import PositionsFile
from calve.sink_core.sink import positions_file
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.status import status


def show(pipeline: SinkPipeline) -> Positions:
    """Each partition of the source."""
    with Session.open(pipeline) as session:
        return of_topics(status(session).partitions)


def export(pipeline: SinkPipeline) -> PositionsFile:
    """The positions for another pipeline."""
    with working("reading positions"), Session.open(pipeline) as session:
        return positions_file.export(session)


def import_(pipeline: SinkPipeline, wanted: PositionsFile, *, as_json: bool) -> None:
    """Begin it with these positions."""
    with working("putting positions in place"), Session.open(pipeline) as session:
        starts = positions_file.begin_with(session, wanted)
    if as_json:
        placed = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in starts.items()]
        say_json({"pipeline": pipeline.name, "positions": placed})
    else:
        say(f"{pipeline.name} begins at {len(starts):,} positions of pipeline {wanted.pipeline}")

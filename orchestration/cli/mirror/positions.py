"""What `calve positions` does with a mirror."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calve.orchestration.cli.options import user
from calve.orchestration.cli.output import ask, say, say_json, say_table, working
from calve.orchestration.cli.positions_table import Positions, of_topics

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.mirror.positions import Move
    from calve.sink_core.offsets import Offsets


def show(pipeline: MirrorPipeline) -> Positions:
    """Each partition of the source."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.status import status

    with MirrorPlane(pipeline) as plane:
        return of_topics(status(plane).partitions)


def set_(pipeline: MirrorPipeline, wanted: Offsets, *, reason: str, yes: bool, as_json: bool) -> None:
    """Say what would be copied again or never, ask, and move them."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.positions import carry_out, prepare

    with MirrorPlane(pipeline) as plane:
        with working("looking"):
            moves = prepare(plane, wanted)
        if not as_json:
            _say(moves)
        if moves and not yes:
            ask("Set them?", as_json=as_json)
        with working("setting positions"):
            carry_out(plane, moves, by=user(), reason=reason)
    if as_json:
        places = [(move, move.at.topic, move.at.partition) for move in moves]
        moved = [
            {"topic": topic, "partition": partition, "from": move.position, "to": move.offset}
            | {"again": move.again, "never": move.never}
            for move, topic, partition in places
        ]
        say_json({"pipeline": pipeline.name, "set": moved})
    elif moves:
        say(f"{len(moves):,} positions set; calve resume FILE goes on from there")


def _say(moves: Sequence[Move]) -> None:
    if not moves:
        say("nothing to do: the positions are there already")
        return
    columns = ["topic", "partition", "from", "to", "copied again", "never copied"]
    rows = [
        [m.at.topic, str(m.at.partition), *(f"{n:,}" for n in (m.position, m.offset, m.again, m.never))] for m in moves
    ]
    say_table("positions", columns, rows)
    if again := sum(move.again for move in moves):
        say(f"{again:,} offsets are copied again: their records are then twice in the remote topics", style="yellow")
    if never := sum(move.never for move in moves):
        say(f"{never:,} offsets are passed over: their records are never copied", style="yellow")

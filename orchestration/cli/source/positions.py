"""What `calve positions` does with a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve.orchestration.cli.options import user
from calve.orchestration.cli.output import ask, say, say_json, say_table, working
from calve.orchestration.cli.positions_table import Positions, of_source
from calve.sink_core.wording import counted

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.source.base import Update
    from calve.sink_core.source.flat_map import FlatMap
    from calve.sink_core.source.positions import Preview

_MOST_ROWS = 50


def show(pipeline: SourcePipeline) -> Positions:
    """Each source partition."""
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.positions import look

    with SourcePlane(pipeline) as plane:
        return of_source(look(plane))


def set_(
    pipeline: SourcePipeline,
    partition: str | None,
    offset: str | None,
    file: Path | None,
    *,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Say what would be stored, ask, and store it: one offset, or those of a file."""
    from calve.sink_core.source.flat_map import FlatMap
    from calve.sink_core.source.positions import read

    wanted: Update = read(file) if file is not None else {FlatMap.parsed(partition or ""): FlatMap.parsed(offset or "")}
    _move(pipeline, wanted, reason=reason, yes=yes, as_json=as_json)


def reset(pipeline: SourcePipeline, partition: str | None, *, reason: str, yes: bool, as_json: bool) -> None:
    """Say what would be taken away, ask, and do it: of one source partition, or of all."""
    from calve.sink_core.source.flat_map import FlatMap

    wanted: Update | None = {FlatMap.parsed(partition): None} if partition is not None else None
    _move(pipeline, wanted, reason=reason, yes=yes, as_json=as_json)


def _move(pipeline: SourcePipeline, wanted: Update | None, *, reason: str, yes: bool, as_json: bool) -> None:
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.positions import carry_out, prepare

    with SourcePlane(pipeline) as plane:
        with working("looking"):
            found = prepare(plane, wanted)
        if not as_json:
            _say(found)
        if found.moves and not yes:
            ask("Set them?", as_json=as_json)
        with working("setting source offsets"):
            carry_out(plane, found.moves, by=user(), reason=reason)
    if as_json:
        moved = [
            {
                "partition": dict(m.partition),
                "from": _plain(m.stored),
                "logged": _plain(m.logged),
                "to": _plain(m.after),
            }
            for m in found.moves
        ]
        say_json({"pipeline": pipeline.name, "set": moved, "waiting": found.waiting})
    elif found.moves:
        number = counted(len(found.moves), "source offset", "source offsets")
        say(f"{number} set; calve resume FILE goes on from there")


def _say(found: Preview) -> None:
    if not found.moves:
        say("nothing to do: the source offsets are so already")
        return
    rows = [
        [m.partition.json, *(each.json if each is not None else "-" for each in (m.stored, m.logged, m.after))]
        for m in found.moves[:_MOST_ROWS]
    ]
    say_table("source offsets", ["source partition", "stored", "by the control log", "to"], rows)
    if len(found.moves) > len(rows):
        say(f"and {len(found.moves) - len(rows):,} more; --json has all")
    say(f"then waits: {found.waiting}; what was sent from there on is sent again", style="yellow")


def _plain(offset: FlatMap | None) -> dict[str, Any] | None:
    return dict(offset) if offset is not None else None

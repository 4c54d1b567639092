"""What `calve positions import --from mm2` and `export --to mm2` do with a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.orchestration.cli.output import ask, say, say_json, working

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.mirror.mm2 import TakeOver
    from calve.sink_core.offsets import Offsets


def import_(pipeline: MirrorPipeline, *, yes: bool, as_json: bool) -> None:
    """Say what would be fenced and taken over, ask, and do it."""
    from calve.sink_core.mirror import mm2
    from calve.sink_core.mirror.plane import MirrorPlane

    with MirrorPlane(pipeline) as plane:
        with working("looking"):
            found = mm2.look(plane)
        if not as_json:
            for line in _told(found):
                say(line)
        if not yes:
            ask("Do it?", as_json=as_json)
        with working("putting positions in place"):
            taken = mm2.take_over(plane)
    if as_json:
        not_taken = {"others": taken.others, "exactly_once": taken.exactly_once}
        say_json({"pipeline": pipeline.name, "positions": _listed(taken.starts)} | not_taken)
    else:
        say(f"{pipeline.name} begins at {len(taken.starts):,} positions; don't start MirrorMaker 2 again")


def _told(found: TakeOver) -> list[str]:
    lines = [f"fence {found.tasks:,} tasks of MirrorMaker 2, and begin behind what they copied last:"]
    lines += [
        f"  {at} at {offset}{'' if at in found.copied else ', which MirrorMaker 2 has not copied'}"
        for at, offset in sorted(found.starts.items())
    ]
    if found.others:
        lines.append(f"not selected, and copied by nobody from then on: {', '.join(found.others)}")
    if not found.exactly_once:
        lines.append("MirrorMaker 2 ran without exactly-once: what it copied after its last offset comes again")
    return lines


def export(pipeline: MirrorPipeline, *, yes: bool, as_json: bool) -> None:
    """Say where MirrorMaker 2 would go on, ask, and do it."""
    from calve.sink_core.mirror import mm2
    from calve.sink_core.mirror.plane import MirrorPlane

    with MirrorPlane(pipeline) as plane:
        with working("looking"):
            found = mm2.to_give_back(plane)
        if not as_json:
            say("have MirrorMaker 2 go on at:")
            for at, offset in found.items():
                say(f"  {at} at {offset}")
        if not yes:
            ask("Do it?", as_json=as_json)
        with working("writing positions"):
            given = mm2.give_back(plane)
    if as_json:
        say_json({"pipeline": pipeline.name, "positions": _listed(given)})
    else:
        say(f"MirrorMaker 2 goes on at {len(given):,} positions; don't resume {pipeline.name}")


def _listed(positions: Offsets) -> list[dict[str, object]]:
    return [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in positions.items()]

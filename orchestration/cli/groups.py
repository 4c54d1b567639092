"""`calve groups`: consumer groups of a mirror's source, and where they go on at the target."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, mirror
from calve.orchestration.cli.output import say, say_json, say_table, working

if TYPE_CHECKING:
    from pathlib import Path

    from calve.sink_core.mirror.groups import GroupOffset

app = typer.Typer(help="Consumer groups of a mirror's source, and where they go on at the target.")

_COLUMNS = ["group", "topic", "partition", "source offset", "lag", "target offset", "at the target", "state"]


@command(app, "show")
def show(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """What each group has read at the source, where that is at the target, and where it is there now."""
    _show("groups show", file, connections, as_json=as_json)


@command(app, "sync")
def sync(
    file: PipelineFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Put each group that has no consumer at the target where it goes on there, never backwards.

    Also while the pipeline is paused: the last sync before consumers move. What can't be done is said, and no failure.
    """
    _show("groups sync", file, connections, does=not dry_run, as_json=as_json)


def _show(name: str, file: Path, connections: Path | None, *, does: bool = False, as_json: bool) -> None:
    from calve.sink_core.mirror.groups import GroupSync, look
    from calve.sink_core.mirror.plane import MirrorPlane

    pipeline = mirror(name, file, connections)
    with working("looking at groups") as status, MirrorPlane(pipeline) as plane:
        plane.read_only()
        _ = plane.pipeline_id
        plane.check_bound()
        sync = GroupSync(plane, lambda step: status.update(step.message))
        groups = sync.sync() if does else look(plane)
    if as_json:
        offsets, blockers = map(_document, groups.offsets), map(asdict, groups.blockers)
        say_json({"pipeline": pipeline.name, "groups": [*offsets], "blockers": [*blockers]})
    elif not pipeline.config.groups.include:
        say("groups.include selects none")
    else:
        say_table(f"groups of {pipeline.config.source_alias}", _COLUMNS, [_row(each) for each in groups.offsets])
        for each in groups.blockers:
            say(str(each))


def _document(each: GroupOffset) -> dict[str, object]:
    return {
        "group": each.group,
        "topic": each.topic,
        "partition": each.partition,
        "remote": each.remote,
        "source_offset": each.source_offset,
        "lag": each.lag,
        "target_offset": each.target_offset,
        "found": each.found,
        "done": each.done,
        "why_not": each.why_not,
    }


def _row(each: GroupOffset) -> list[str]:
    state = "in place" if each.done else each.why_not or "to be put in place"
    numbers = [str(each.partition), str(each.source_offset), str(each.lag)]
    target = ["-" if offset is None else str(offset) for offset in (each.target_offset, each.found)]
    return [each.group, each.topic, *numbers, *target, state]

"""`calve pause` and `calve resume`: two events on the control topic, which every host obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, control_plane, user
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError

if TYPE_CHECKING:
    from calve.sink_core.control.events import Paused


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "pause")(pause)
    command(app, "resume")(resume)


def pause(
    file: PipelineFile,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown wherever it holds something up.")] = (
        "paused by hand"
    ),
    wait: Annotated[bool, typer.Option("--wait", help="Until no batch is in progress.")] = False,
    timeout: Annotated[float, typer.Option(min=0, metavar="S", help="How long --wait waits.")] = 600,
    giving_up: Annotated[
        bool, typer.Option("--give-up", help="After --wait, give up what is still in progress; nothing is lost by it.")
    ] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop planning and committing on all hosts until `calve resume`. A batch in progress is still finished.

    Exit code 1: with --wait, batches are still listed as in progress after the time-out; the pause is in effect anyway.
    With --give-up no run can publish these any more, dead or alive: after the resume their records are read again.
    """
    from calve.sink_core.control import pausing

    if giving_up and not wait:
        raise ConfigError(
            "--give-up goes with --wait", hint="add --wait, and --timeout 0 to give up at once", code=Code.OPTION
        )
    with working("connecting") as status, control_plane(file, connections) as plane:
        made = pausing.pause(plane, user(), reason)
        given_up: tuple[str, ...] = ()
        document = {"pipeline": plane.pipeline.name, "paused": _document(made.paused), "written": made.written}
        if not as_json:
            say(str(made.paused) if made.written else f"paused already since {pausing.told(made.paused)}")
        if wait:
            try:
                given_up = pausing.wait_until_idle(plane, made, timeout, giving_up=giving_up, on_progress=status.update)
            except CalveError as error:
                if not as_json:
                    raise
                say_json(document | error.to_json())
                raise typer.Exit(error.exit_code) from None
    if as_json:
        say_json(document | ({"given_up": given_up} if wait else {}))
    elif wait:
        say(f"no batch is in progress; given up: {', '.join(given_up)}" if given_up else "no batch is in progress")


def resume(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """End a pause; or, after a stop, say that its cause is corrected, so that runs are started again."""
    from calve.sink_core.control import pausing

    by = user()
    with working("connecting"), control_plane(file, connections) as plane:
        was = pausing.resume(plane, by)
    if as_json:
        say_json({"pipeline": plane.pipeline.name, "resumed_by": by, "was_paused": _document(was) if was else None})
    elif was:
        say(f"resumed; it was paused since {pausing.told(was)}")
    else:
        say("it was not paused; if it was stopped, it is tried again")


def _document(paused: Paused) -> dict[str, Any]:
    from calve.sink_core.control.pausing import since

    return {"since": since(paused), "by": paused.by, "reason": paused.reason}

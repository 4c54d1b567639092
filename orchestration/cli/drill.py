"""`calve drill`: kills runs on purpose, on the user's own set-up, and shows what became of the records."""

from __future__ import annotations

import signal
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, sink
from calve.orchestration.cli.output import say, say_json, say_table, working
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from calve.orchestration.drill import Drill, Round


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "drill")(drill)


def drill(
    file: PipelineFile,
    records: Annotated[int, typer.Option(min=100, metavar="N", help="Records on their way, in all.")] = 3000,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="POINT", help="Only this crash point; may be repeated.", show_default=False),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave topics, group, tables and files to be looked at.")
    ] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Kill real runs at each crash point, with the connections of FILE and a scratch pipeline, and prove what the next
    run made of it. FILE's own pipeline is not touched; everything of the drill is removed at the end.

    Exit code 0: no record was lost or is there twice; 1: one was, or something could not be removed.
    """
    from calve.orchestration.drill import CRASH_POINTS, Drill

    unknown = sorted(set(only or ()) - set(CRASH_POINTS))
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: no crash point of a run",
            hint=f"there are {', '.join(CRASH_POINTS)}",
            code=Code.NO_SUCH_NAME,
        )
    crash_points = [point for point in CRASH_POINTS if not only or point in only]
    # Ended by either signal it removes what it has made.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made, rounds, left = Drill(sink("drill", file, connections)), list["Round"](), list[str]()
    with working("preparing") as status:
        try:
            made.prepare()
            rounds += made.rounds(crash_points, records, status.update)
        finally:
            if not keep:
                status.update("removing what was made")
                left += made.clean()
            for what in left if not as_json else []:
                say(f"could not be removed: {what}", style="yellow")
    well = not left and all(round_.well for round_ in rounds)
    if as_json:
        say_json(_document(made, rounds, left, well=well, keep=keep))
    else:
        _say(made, rounds, well=well, keep=keep)
    if not well:
        raise typer.Exit(EXIT_STOPPED)


def _say(made: Drill, rounds: list[Round], *, well: bool, keep: bool) -> None:
    rows = [
        [r.crash_point, "yes" if r.killed else "no", f"{r.recovered_s:.1f}", f"{r.lost:,}", f"{r.twice:,}"]
        for r in rounds
    ]
    say_table("drill", ["killed at", "killed", "recovered in s", "lost", "twice"], rows)
    for round_ in rounds:
        if round_.trouble:
            say(f"{round_.crash_point}: {round_.trouble}", style="red")
    for what in made.left if keep else ():
        say(f"kept: {what}")
    say("nothing lost, nothing twice" if well else "NOT as it should be", style="green" if well else "red")


def _document(made: Drill, rounds: list[Round], left: list[str], *, well: bool, keep: bool) -> dict[str, Any]:
    shown = [{**asdict(round_), "well": round_.well} for round_ in rounds]
    return {"name": made.name, "well": well, "rounds": shown, "kept": made.left if keep else (), "not_removed": left}

"""`calve broker`: the embedded Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.errors import EXIT_STOPPED

if TYPE_CHECKING:
    from calve.orchestration.local.broker import Broker

app = typer.Typer(help="A real one-node Kafka, for trying things out and for small installations.")

Directory = Annotated[Path, typer.Option("--dir", metavar="D", help="Where everything of the broker is kept.")]
Port = Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="0: the one it had, or a free one.")]

DEFAULT_DIRECTORY = Path(".calve/broker")


@command(app, "start")
def start(directory: Directory = DEFAULT_DIRECTORY, port: Port = 0, as_json: AsJson = False) -> None:
    """Start the broker of a folder, or find it running; it outlives this command."""
    from calve.orchestration.local import broker

    with working("starting Kafka (the first time its jars are fetched)"):
        running = broker.start(directory, port)
    if as_json:
        say_json(_document(running))
    else:
        say(f"Kafka runs at {running.bootstrap} (pid {running.pid}, data in {running.directory})")


@command(app, "stop")
def stop(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop the broker of a folder and wait until it is gone; its data stays."""
    from calve.orchestration.local import broker

    with working("stopping Kafka"):
        stopped = broker.stop(directory)
    if as_json:
        say_json({"stopped": stopped})
    else:
        say("stopped" if stopped else f"no broker runs in {directory}")


@command(app, "status")
def status(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Say whether the broker of a folder runs; exit code 1 if it doesn't."""
    from calve.orchestration.local import broker

    running = broker.status(directory)
    if as_json:
        say_json(_document(running))
    elif running:
        say(f"Kafka runs at {running.bootstrap} (pid {running.pid}, data in {running.directory})")
    else:
        say(f"no broker runs in {directory}")
    if running is None:
        raise typer.Exit(EXIT_STOPPED)


def _document(running: Broker | None) -> dict[str, Any]:
    if running is None:
        return {"running": False}
    where = {"bootstrap": running.bootstrap, "port": running.port, "directory": str(running.directory)}
    return {"running": True, "pid": running.pid, **where}

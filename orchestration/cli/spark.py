"""`calve spark`: what makes Spark start faster, or spares runs its start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.error_codes.files import OPTION
from calve.sink_core.errors import EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from calve.orchestration.local.spark_server import SparkServer

app = typer.Typer(help="What makes Spark start faster, and a Spark that is up already.")

Directory = Annotated[Path, typer.Option("--dir", metavar="D", help="Where everything of the server is kept.")]
Port = Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="0: the one it had, or a free one.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's, such as spark.driver.memory=4g."),
]

DEFAULT_DIRECTORY = Path(".calve/spark")


@command(app, "prepare")
def prepare(as_json: AsJson = False) -> None:
    """Compile what reads records, and archive the classes that each start of Spark loads; once per machine."""
    from calve.sink_core import compiled
    from calve.spark_jobs import class_archive

    with working("compiling kernels") as status:
        kernels = compiled.prepare()
        status.update("starting Spark")
        path, written = class_archive.prepare(status.update)
    if as_json:
        say_json({"archive": str(path), "written": written, "kernels": kernels})
        return
    for module, what in kernels.items():
        say(f"{module}: {what}")
    say(f"{path}: {'written' if written else 'there already'}")


@command(app, "start")
def start(directory: Directory = DEFAULT_DIRECTORY, port: Port = 0, conf: Conf = None, as_json: AsJson = False) -> None:
    """Start the Spark Connect server of a folder, or find it running; it outlives this command.

    Its address is for `remote` under `spark` in connections.yaml. Who can connect to its port, on this machine, can run
    code as you, unless the variable SPARK_CONNECT_AUTHENTICATE_TOKEN is set here and for runs.
    """
    from calve.orchestration.local import spark_server

    with working("starting Spark"):
        running = spark_server.start(directory, port, conf=_settings(conf or []))
    _say_running(running, directory, as_json=as_json)


@command(app, "stop")
def stop(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop the server of a folder, with the runs on it, and wait until it is gone."""
    from calve.orchestration.local import spark_server

    with working("stopping Spark"):
        stopped = spark_server.stop(directory)
    if as_json:
        say_json({"stopped": stopped})
    else:
        say("stopped" if stopped else f"no Spark server runs in {directory}")


@command(app, "status")
def status(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Say whether the server of a folder runs; exit code 1 if it doesn't."""
    from calve.orchestration.local import spark_server

    running = spark_server.status(directory)
    _say_running(running, directory, as_json=as_json)
    if running is None:
        raise typer.Exit(EXIT_STOPPED)


def _settings(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    wrong = [key for key, equals, _ in pairs if not (key.strip() and equals)]
    if wrong:
        raise ConfigError(
            f"--conf {wrong[0]}: not KEY=VALUE", hint="write, for example, --conf spark.driver.memory=4g", code=OPTION
        )
    return {key.strip(): value for key, _, value in pairs}


def _say_running(running: SparkServer | None, directory: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(_document(running))
    elif running:
        say(f"Spark runs at {running.remote} (pid {running.server.pid}, files in {running.directory})")
    else:
        say(f"no Spark server runs in {directory}")


def _document(running: SparkServer | None) -> dict[str, Any]:
    if running is None:
        return {"running": False}
    server, where = running.server, str(running.directory)
    return {"running": True, "pid": server.pid, "remote": running.remote, "port": server.port, "directory": where}

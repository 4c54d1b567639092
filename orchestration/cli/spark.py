"""`calve spark`: what makes Spark start faster, or spares runs its start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from calve.orchestration.cli.output import say, say_json, working
from calve.sink_core.errors import EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from calve.sink_core.config.connections import SparkSettings
    from calve.spark_jobs.warm import WarmSpark

app = typer.Typer(help="What makes Spark start faster, and a Spark that is up already.")


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
def start(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Start a warm Spark with the pipeline's `spark`, or find it running; it stays up until `calve spark stop`.

    Runs of all pipelines with the same `spark` use it. Only its owner can: the key to it is in its folder.
    """
    from calve.spark_jobs import warm

    settings, folder = _place(file, connections)
    with working("starting Spark"):
        running = warm.start(folder, settings)
        warm.stay_file(folder).touch()
    _say_running(running, folder, as_json=as_json)


@command(app, "stop")
def stop(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Stop the warm Spark of the pipeline's `spark`, and wait until it is gone; a run that is on it goes on without.

    Dagster starts it again for as long as `warm` is `auto`.
    """
    from calve.spark_jobs import warm

    _, folder = _place(file, connections)
    with working("stopping Spark"):
        stopped = warm.stop(folder)
    if as_json:
        say_json({"stopped": stopped})
    else:
        say("stopped" if stopped else f"no Spark runs in {folder}")


@command(app, "status")
def status(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Say whether a warm Spark of the pipeline's `spark` runs, and for whom; exit code 1 if none does."""
    from calve.spark_jobs import warm

    _, folder = _place(file, connections)
    running = warm.running(folder)
    _say_running(running, folder, as_json=as_json)
    if running is None:
        raise typer.Exit(EXIT_STOPPED)


def _place(file: Path, connections: Path | None) -> tuple[SparkSettings, Path]:
    """The settings and the folder. Raises ConfigError where none is to be used."""
    from calve.sink_core.config.load import load
    from calve.spark_jobs import warm

    settings = load(file, connections).spark
    folder = warm.folder_of(settings)
    if folder is None:
        why = (
            "has `warm: never`" if settings.remote is None else "uses Spark Connect at `remote`, which is up by itself"
        )
        raise ConfigError(
            f"the pipeline's `spark` {why}",
            hint="leave `warm` out, or give it a folder, with `master` in connections.yaml",
        )
    return settings, folder


def _say_running(running: WarmSpark | None, folder: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(_document(running, folder))
    elif running is None:
        say(f"no Spark runs in {folder}")
    elif not running.is_up:
        say(f"Spark is starting in {folder} (pid {running.process.pid})")
    else:
        runs = f"; {len(running.runs)} runs on it" if running.runs else ""
        page = f", {running.ui}" if running.ui else ""
        say(f"Spark runs: {running.application_id} on {running.master}{page} (pid {running.process.pid}){runs}")


def _document(running: WarmSpark | None, folder: Path) -> dict[str, Any]:
    if running is None:
        return {"running": False, "directory": str(folder)}
    return {
        "running": running.is_up,
        "pid": running.process.pid,
        "application_id": running.application_id,
        "master": running.master,
        "ui": running.ui,
        "runs": len(running.runs),
        "directory": str(folder),
    }

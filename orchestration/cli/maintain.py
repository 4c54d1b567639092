"""`calve maintain`: maintenance by hand, as the schedules do it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command, raise_failures
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, control_plane, sink
from calve.orchestration.cli.output import say, say_json, say_table, working

if TYPE_CHECKING:
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.control.maintenance import LogTask
    from calve.sink_core.control.maintenance_report import MaintenanceReport, OnProgress, TaskOutcome
    from calve.sink_core.control.plane import AnyPlane


class Task(StrEnum):
    """What to do."""

    COMPACT = "compact"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    ORPHANS = "orphans"
    TRIM = "trim"
    KEEP_ALIVE = "keep-alive"


OF_THE_LOG: dict[Task, LogTask] = {Task.TRIM: "trim", Task.KEEP_ALIVE: "keep_alive"}
"""Those that every kind has."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "maintain")(maintain)


def maintain(
    file: PipelineFile,
    task: Annotated[Task, typer.Argument(help="What to do.", show_default=False)],
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this table; may be repeated.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Join small files, rewrite manifests, expire snapshots, delete orphan files, trim the control topic or keep the
    group's offsets from expiring. Settings are those under `maintenance`, or their defaults.

    Exit code 1 or 3: it failed for a table; it was done for the others.
    """
    with working("connecting") as status:
        if task in OF_THE_LOG and not table:
            report = _of_the_log(OF_THE_LOG[task], control_plane(file, connections), status.update, dry_run=dry_run)
        else:
            pipeline = sink("maintain --table" if table else f"maintain {task}", file, connections)
            report = _of_tables(task, pipeline, table or (), status.update, dry_run=dry_run)
    if as_json:
        say_json(_document(report))
    else:
        _say(report)
    raise_failures(report, as_json=as_json)


def _of_the_log(task: LogTask, plane: AnyPlane, on_progress: OnProgress, *, dry_run: bool) -> MaintenanceReport:
    from calve.sink_core.control.maintenance import run_log_task

    with plane:
        return run_log_task(task, plane, dry_run=dry_run, on_progress=on_progress)


def _of_tables(
    task: Task, pipeline: SinkPipeline, tables: Sequence[str], on_progress: OnProgress, *, dry_run: bool
) -> MaintenanceReport:
    from calve.sink_core.sink.loop.session import Session
    from calve.sink_core.sink.maintenance.tasks import run_task
    from calve.spark_jobs.engine import SparkEngine
    from calve.spark_jobs.procedures import SparkProcedures

    with Session.open(pipeline) as session, SparkEngine(pipeline.spark) as engine:
        procedures = SparkProcedures(lambda: engine.session, pipeline.catalog)
        return run_task(_named(task), session, procedures, tables=tables, dry_run=dry_run, on_progress=on_progress)


def _named(task: Task) -> str:
    """As reports and settings have it."""
    return task.replace("-", "_")


def _say(report: MaintenanceReport) -> None:
    for outcome in report.done:
        say(f"{outcome.subject}: {outcome.did}")
    changed = [outcome for outcome in report.done if outcome.changed]
    if changed:
        names = list(dict.fromkeys(name for outcome in changed for name in outcome.before))
        say_table("before → after", ["", *names], [_row(outcome, names) for outcome in changed])


def _row(outcome: TaskOutcome, names: list[str]) -> list[str]:
    return [outcome.subject, *(f"{outcome.before.get(n, 0):,} → {outcome.after.get(n, 0):,}" for n in names)]


def _document(report: MaintenanceReport) -> dict[str, Any]:
    return {
        "done": [outcome.to_json() for outcome in report.done],
        "failed": {subject: error.to_json() for subject, error in report.failed.items()},
    }

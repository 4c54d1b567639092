"""Maintenance of the control log and the group's positions, by name: what every kind of pipeline has."""

from __future__ import annotations

from typing import Literal

from calve.sink_core.control.keep_alive import keep_alive
from calve.sink_core.control.maintenance_report import MaintenanceReport, OnProgress, TaskOutcome
from calve.sink_core.control.plane import AnyPlane
from calve.sink_core.control.trim import trim

LogTask = Literal["trim", "keep_alive"]


def bound_for(task: str, plane: AnyPlane) -> MaintenanceReport | None:
    """None once the pipeline is bound for the task; of one that has never run the report that there is nothing to do.

    Raises FindingError if the pipeline must stop.
    """
    if plane.read_only():
        plane.bind()
        return None
    never = f"nothing to do: pipeline {plane.pipeline.name} has not run yet"
    return MaintenanceReport([TaskOutcome(task, plane.pipeline.name, never, False)])


def run_log_task(
    task: LogTask, plane: AnyPlane, *, dry_run: bool = False, on_progress: OnProgress = lambda _step: None
) -> MaintenanceReport:
    """Run the task by the pipeline's settings for it. Raises as `bound_for`."""
    if never := bound_for(task, plane):
        return never
    if task == "keep_alive":
        return MaintenanceReport([keep_alive(plane)])
    older_than_s = plane.pipeline.config.maintenance.trim.older_than
    return MaintenanceReport([trim(plane, older_than_s=older_than_s, dry_run=dry_run, on_progress=on_progress)])

"""Every maintenance task by its name: what the command line and Dagster's jobs call."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.codes import Code
from calve.sink_core.control.maintenance import bound_for, run_log_task
from calve.sink_core.control.maintenance_report import MaintenanceReport, OnProgress
from calve.sink_core.errors import ConfigError
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.maintenance import of_formats
from calve.sink_core.sink.maintenance.compact import compact, rewrite_manifests
from calve.sink_core.sink.maintenance.expire import expire
from calve.sink_core.sink.maintenance.orphans import remove_orphans
from calve.sink_core.sink.maintenance.work import Procedures, Work


def run_task(
    task: str,
    session: Session,
    procedures: Procedures,
    *,
    tables: Sequence[str] = (),
    dry_run: bool = False,
    on_progress: OnProgress = lambda _step: None,
) -> MaintenanceReport:
    """Run one of `calve.sink_core.config.maintenance.TASKS` by the pipeline's settings for it.

    `tables` narrows those that work on tables, and takes any of the pipeline's that it names. Raises ConfigError for a
    table that isn't the pipeline's, FindingError if the pipeline must stop; what went wrong at one table is in the
    report.
    """
    pipeline = session.pipeline
    pipeline.require_tables(tables)
    if task == "trim" or task == "keep_alive":
        return run_log_task(task, session, dry_run=dry_run, on_progress=on_progress)
    if never := bound_for(task, session):
        return never
    settings = pipeline.config.maintenance
    wanted = bool(tables) or task in settings.model_fields_set
    work = Work(session, procedures, on_progress, tables, dry_run, wanted)
    match task:
        case "compact":
            return _both(compact(work, settings.compact), of_formats.compact(work, settings.compact))
        case "manifests":
            return rewrite_manifests(work, settings.manifests)
        case "expire":
            return _both(expire(work, settings.expire), of_formats.expire(work, settings.expire))
        case "orphans":
            return _both(remove_orphans(work, settings.orphans), of_formats.remove_orphans(work, settings.orphans))
        case _:
            raise ConfigError(
                f"no maintenance task {task}", hint="calve maintain --help lists them", code=Code.NO_SUCH_NAME
            )


def _both(one: MaintenanceReport, other: MaintenanceReport) -> MaintenanceReport:
    return MaintenanceReport([*one.done, *other.done], {**one.failed, **other.failed})

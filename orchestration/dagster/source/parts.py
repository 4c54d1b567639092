"""A source in Dagster: system → copy → topics, with its checks, jobs and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.names import CHECKS
from calve.orchestration.dagster.common.operations import pausing
from calve.orchestration.dagster.common.operations.job import Work, job_of
from calve.orchestration.dagster.common.operations.maintenance import (
    LogTaskConfig,
    Maintaining,
    maintenance_jobs,
    maintenance_schedules,
)
from calve.orchestration.dagster.common.parts import Parts, asset_job
from calve.orchestration.dagster.common.schedules import checks_schedule
from calve.orchestration.dagster.common.topics import COPY
from calve.orchestration.dagster.source.checks import checks_of
from calve.orchestration.dagster.source.plane import run_plane
from calve.orchestration.dagster.source.sending import copy_of, system_of, tables_of
from calve.orchestration.dagster.source.watch import SourceWatch
from calve.sink_core.config.source_pipeline import SourcePipeline

if TYPE_CHECKING:
    from calve.sink_core.control.maintenance import LogTask
    from calve.sink_core.control.maintenance_report import MaintenanceReport
    from calve.sink_core.source.plane import SourcePlane

TASKS: dict[str, LogTask] = {"trim": "trim", "keep_alive": "keep_alive"}


def source_parts(pipeline: SourcePipeline) -> Parts:
    """Opens nothing: which topics there are, the source says at run time."""
    copy, checks, watch = copy_of(pipeline), checks_of(pipeline), SourceWatch(pipeline)
    config = pipeline.config
    checks_job = asset_job(pipeline, CHECKS, dg.AssetSelection.checks(checks), f"Checks {pipeline.name}.")
    maintenance = maintenance_jobs(pipeline, Maintaining(tuple(TASKS), run_plane, _run))
    return Parts(
        stage=COPY,
        moves=asset_job(
            pipeline,
            COPY,
            dg.AssetSelection.assets(copy).without_checks(),
            f"Sends the pending records of {pipeline.reads}, batch after batch, each record exactly once.",
            within_s=config.run.max_duration + config.run.linger,
        ),
        watch=watch,
        reads=pipeline.reads,
        assets=[system_of(pipeline), *tables_of(pipeline), copy],
        checks=[checks],
        jobs=[
            checks_job,
            job_of(pipeline, pausing.pause(pipeline), run_plane),
            job_of(pipeline, pausing.resume(pipeline), run_plane),
            *maintenance.values(),
        ],
        schedules=[
            checks_schedule(pipeline, checks_job, f"Looks at lag and findings of {pipeline.name}."),
            *maintenance_schedules(pipeline, maintenance, watch),
        ],
    )


def _run(task: str, at: Work[SourcePlane], config: LogTaskConfig) -> MaintenanceReport:
    from calve.sink_core.control.maintenance import run_log_task

    return run_log_task(TASKS[task], at.plane, dry_run=config.dry_run, on_progress=at.say)

"""Schedules: what those of all kinds have in common, and that of the checks."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import zlib
from typing import TYPE_CHECKING

import dagster as dg
from dagster import DagsterInstance

from calve.orchestration.dagster.common.names import CHECKS, job_name
from calve.orchestration.dagster.common.runs import in_progress
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.orchestration.dagster.common.parts import AssetJob


def checks_schedule(pipeline: Pipeline, job: "AssetJob", description: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job_name(pipeline, CHECKS)}_schedule",
        job=job,
        cron_schedule=pipeline.config.dagster.checks or f"{own_minute(pipeline)} * * * *",
        execution_fn=lambda context: scheduled(context.instance, pipeline, CHECKS),
        default_status=default_status(pipeline),
        description=description,
    )


def scheduled(instance: DagsterInstance, pipeline: Pipeline, stage: str) -> dg.RunRequest | dg.SkipReason:
    """A run of the stage, unless one is in progress: of runs longer than the interval ever more would be queued."""
    if current := in_progress(instance, pipeline, stage):
        return dg.SkipReason(f"run {current.dagster_run.run_id[:8]} is in progress")
    return dg.RunRequest()


def default_status(pipeline: Pipeline) -> dg.DefaultScheduleStatus:
    """Running from the first load on, unless the file says otherwise."""
    automatic = pipeline.config.dagster.automatic
    return dg.DefaultScheduleStatus.RUNNING if automatic else dg.DefaultScheduleStatus.STOPPED


def own_minute(pipeline: Pipeline) -> int:
    """A minute of the hour for each pipeline, so that not all are at work at once."""
    return zlib.crc32(pipeline.name.encode()) % 60

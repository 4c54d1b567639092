"""A source in Dagster: system → copy → topics, with its checks, jobs and schedules."""

from __future__ import annotations

import dagster as dg

from calve.orchestration.dagster.common.arrivals import ALL
from calve.orchestration.dagster.common.names import CHECKS
from calve.orchestration.dagster.common.operations import pausing
from calve.orchestration.dagster.common.operations.job import operator_jobs
from calve.orchestration.dagster.common.operations.maintenance import maintenance_jobs, maintenance_schedules, of_log
from calve.orchestration.dagster.common.parts import Parts, asset_job
from calve.orchestration.dagster.common.schedules import checks_schedule
from calve.orchestration.dagster.common.topics import COPY, copy_key
from calve.orchestration.dagster.source import operations
from calve.orchestration.dagster.source.checks import checks_of
from calve.orchestration.dagster.source.plane import run_plane
from calve.orchestration.dagster.source.sending import copy_of, system_of, tables_of
from calve.orchestration.dagster.source.watch import SourceWatch
from calve.sink_core.config.source_pipeline import SourcePipeline


def source_parts(pipeline: SourcePipeline) -> Parts:
    """Opens nothing: which topics there are, the source says at run time."""
    copy, checks, watch = copy_of(pipeline), checks_of(pipeline), SourceWatch(pipeline)
    config = pipeline.config
    checks_job = asset_job(pipeline, CHECKS, dg.AssetSelection.checks(checks), f"Checks {pipeline.name}.")
    maintenance = maintenance_jobs(pipeline, of_log(run_plane))
    by_hand = [
        pausing.pause(pipeline),
        pausing.resume(pipeline),
        operations.verify(pipeline),
        operations.positions(pipeline),
    ]
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
        key_of=lambda _subject: copy_key(pipeline.name),
        fresh=[ALL],
        jobs=[
            checks_job,
            *operator_jobs(pipeline, by_hand, run_plane),
            *maintenance.values(),
        ],
        schedules=[
            checks_schedule(
                pipeline, checks_job, f"Looks at lag, freshness and findings of {pipeline.name}, and proves its chain."
            ),
            *maintenance_schedules(pipeline, maintenance, watch),
        ],
    )

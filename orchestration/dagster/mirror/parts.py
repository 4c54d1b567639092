"""A mirror in Dagster: source topics → copy → remote topics, with its checks, jobs and schedules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.arrivals import ALL
from calve.orchestration.dagster.common.names import CHECKS
from calve.orchestration.dagster.common.operations import pausing, resolving
from calve.orchestration.dagster.common.operations.job import operator_jobs
from calve.orchestration.dagster.common.operations.maintenance import maintenance_jobs, maintenance_schedules, of_log
from calve.orchestration.dagster.common.parts import Parts, asset_job
from calve.orchestration.dagster.common.schedules import checks_schedule
from calve.orchestration.dagster.common.topics import reads, source_topics
from calve.orchestration.dagster.mirror import operations
from calve.orchestration.dagster.mirror.checks import checks_of
from calve.orchestration.dagster.mirror.copying import copy_of
from calve.orchestration.dagster.mirror.names import COPY, asset_key, check_distinct
from calve.orchestration.dagster.mirror.plane import run_plane
from calve.orchestration.dagster.mirror.watch import MirrorWatch
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.control.answers import Answers
    from calve.sink_core.mirror.plane import MirrorPlane


def mirror_parts(pipeline: MirrorPipeline) -> Parts:
    """Raises ConfigError for topics that Dagster can't tell apart."""
    check_distinct(pipeline)
    copy, checks, watch = copy_of(pipeline), checks_of(pipeline), MirrorWatch(pipeline)
    config = pipeline.config
    between = f"from {config.source_alias} to {config.target_alias}"
    checks_job = asset_job(pipeline, CHECKS, dg.AssetSelection.checks(checks), f"Checks {pipeline.name}.")
    maintenance = maintenance_jobs(pipeline, of_log(run_plane))
    looks = f"Looks at lag, freshness, retention and findings of {pipeline.name}, and proves its chain."
    return Parts(
        stage=COPY,
        moves=asset_job(
            pipeline,
            COPY,
            dg.AssetSelection.assets(copy).without_checks(),
            f"Copies the records that are pending {between}, batch after batch, each exactly once.",
            within_s=config.run.max_duration + config.run.linger,
        ),
        watch=watch,
        reads=f"{reads(config.source)} of {config.source_alias}",
        assets=[*source_topics(pipeline, config.source, config.source_alias), copy],
        checks=[checks],
        key_of=partial(asset_key, pipeline),
        fresh=[ALL],
        jobs=[checks_job, *_operations(pipeline), *maintenance.values()],
        schedules=[
            checks_schedule(pipeline, checks_job, looks),
            *maintenance_schedules(pipeline, maintenance, watch),
        ],
    )


def _operations(pipeline: MirrorPipeline) -> list[dg.JobDefinition]:
    """What an operator does by hand."""
    by_hand = [
        pausing.pause(pipeline),
        pausing.resume(pipeline),
        resolving.resolve(pipeline, _answers_of),
        operations.verify(pipeline),
        operations.positions(pipeline),
    ]
    return operator_jobs(pipeline, by_hand, run_plane)


def _answers_of(plane: MirrorPlane) -> Answers[MirrorPlane]:
    from calve.sink_core.mirror.answers import answers_of

    return answers_of(plane)

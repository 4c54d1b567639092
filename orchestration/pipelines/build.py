"""All of a pipeline's Dagster definitions, from its model. The component and plain Python projects both come here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.compat import disable_dagster_warnings
from calve.orchestration.pipelines import specs
from calve.orchestration.pipelines.checks import checks_of
from calve.orchestration.pipelines.commit import commit_of
from calve.orchestration.pipelines.ingest import ingest_of
from calve.orchestration.pipelines.names import CHECKS, COMMIT, INGEST, job_name, run_tags, table_key
from calve.orchestration.pipelines.operations import dead_letters, looking, pausing, replay, resolving
from calve.orchestration.pipelines.operations.job import job_of
from calve.orchestration.pipelines.operations.maintenance import maintenance_jobs, maintenance_schedules
from calve.orchestration.pipelines.schedules import checks_schedule, commit_schedule
from calve.orchestration.pipelines.sensor import lag_sensor
from calve.orchestration.pipelines.spark import own_resources
from calve.orchestration.pipelines.watch import Watch
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from calve.orchestration.compat import UnresolvedAssetJobDefinition as JobDefinition

MARGIN_S = 1800
"""A run may last this much longer than `run.max_duration`: the last batch begins within it and ends when it ends."""


def build_pipeline_defs(
    pipeline: Pipeline, *, asset_spec: Callable[[dg.AssetSpec], dg.AssetSpec] | None = None
) -> dg.Definitions:
    """Assets, checks, jobs, sensor, schedules and Spark resource of `pipeline` (`calve.load_pipeline` gives it).

    `asset_spec` gives the spec of a topic, of the batches or of a table as Dagster is to have it. Opens no connection
    and reads no environment variable. Raises ConfigError for what no schedule can express.
    """
    _check_distinct(pipeline)
    ingest, commit, checks, watch = ingest_of(pipeline), commit_of(pipeline), checks_of(pipeline), Watch(pipeline)
    every = pipeline.config.commit.every
    into = " into its tables" if every == "batch" else ""
    ingest_job = _job(
        pipeline,
        INGEST,
        dg.AssetSelection.assets(ingest).without_checks(),
        f"Moves the records that are pending for {pipeline.name}{into}, batch after batch, each exactly once.",
    )
    commit_job = _job(
        pipeline,
        COMMIT,
        dg.AssetSelection.assets(commit).without_checks(),
        f"Commits what {pipeline.name} has published to its tables.",
    )
    checks_job = _job(pipeline, CHECKS, dg.AssetSelection.checks(checks), f"Proves and checks {pipeline.name}.")
    maintenance = maintenance_jobs(pipeline)
    defs = dg.Definitions(
        assets=[*specs.topics(pipeline), ingest, commit],
        asset_checks=[checks],
        jobs=[ingest_job, commit_job, checks_job, *_operations(pipeline), *maintenance.values()],
        sensors=[lag_sensor(pipeline, ingest_job, watch)],
        schedules=[
            *([] if every == "batch" else [commit_schedule(pipeline, every, commit_job, watch)]),
            checks_schedule(pipeline, checks_job),
            *maintenance_schedules(pipeline, maintenance, watch),
        ],
        resources=own_resources(pipeline),
    )
    # Users can't help that this method is called a preview.
    with disable_dagster_warnings():
        return defs.map_asset_specs(func=asset_spec) if asset_spec else defs


def _operations(pipeline: Pipeline) -> list[dg.JobDefinition]:
    """What an operator does by hand."""
    return [
        job_of(pipeline, pausing.pause(pipeline)),
        job_of(pipeline, pausing.resume(pipeline)),
        job_of(pipeline, resolving.resolve(pipeline)),
        job_of(pipeline, looking.verify(pipeline)),
        job_of(pipeline, looking.positions(pipeline)),
        job_of(pipeline, replay.replay(pipeline)),
        job_of(pipeline, replay.replay_hours(pipeline)),
        job_of(pipeline, dead_letters.listing(pipeline)),
        job_of(pipeline, dead_letters.replay(pipeline)),
    ]


def _check_distinct(pipeline: Pipeline) -> None:
    known: dict[str, str] = {}
    for table in pipeline.table_names:
        other = known.setdefault(table_key(pipeline, table).to_python_identifier(), table)
        if other != table:
            raise ConfigError(
                f"{pipeline.path}: tables: Dagster can't tell {table} from {other}: to it - and _ are the same",
                hint="rename one of them, or feed it from another pipeline",
            )


def _job(pipeline: Pipeline, stage: str, selection: dg.AssetSelection, description: str) -> JobDefinition:
    run = pipeline.config.run
    most_s = MARGIN_S + (int(run.max_duration + run.linger) if stage == INGEST else 0)
    return dg.define_asset_job(
        job_name(pipeline, stage),
        selection=selection,
        description=description,
        tags={**run_tags(pipeline, stage), "dagster/max_runtime": str(most_s)},
        # A process for each step costs more than the steps do.
        executor_def=dg.in_process_executor,
    )

"""The job that tries dead letters again, as `calve dead-letters replay` does. It has no schedule: a cause is mended."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from orchestration.pipelines import metadata
from orchestration.pipelines.names import (
    REPLAY,
    batches_key,
    job_name,
    op_name,
    pool,
    resource_key,
    run_tags,
    table_key,
)
from orchestration.pipelines.runs import failures_told
from orchestration.pipelines.spark import session_of
from sink_core.config.effective import Pipeline
from sink_core.errors import RetriableError

if TYPE_CHECKING:
    from spark_jobs.letter_job import LettersReport

Told = dg.AssetMaterialization | dg.Output[None]


class ReplayConfig(dg.Config):
    """Which dead letters to try; all without `ranges`, each `TOPIC/PARTITION:START-END`."""

    ranges: list[str] = Field(default=[])


def replay_job(pipeline: Pipeline) -> dg.JobDefinition:
    """To be launched by hand; a run may last as long as one of maintenance."""
    most_s = str(int(pipeline.config.maintenance.max_duration))
    description = f"Tries the dead letters of {pipeline.name} again: what fits now goes to its tables."

    @dg.op(
        name=op_name(pipeline, REPLAY),
        description=description,
        out=dg.Out(None),
        pool=pool(pipeline, REPLAY),
        required_resource_keys={resource_key(pipeline)},
    )
    def replay(context: dg.OpExecutionContext, config: ReplayConfig) -> Iterator[Told]:
        from orchestration.cli.times import offset_range
        from sink_core.control.decision import Verdict
        from sink_core.session import Session
        from spark_jobs.letter_job import LetterJobs
        from spark_jobs.runner import SparkRunner

        start = session_of(getattr(context.resources, resource_key(pipeline)))
        with (
            failures_told(context.instance, context.run, pipeline),
            Session.open(pipeline) as session,
            SparkRunner(pipeline.spark, session=start) as runner,
        ):
            wanted = [offset_range(text, "ranges") for text in config.ranges]
            session.read_only()
            # Before anything is bound: a pipeline that has never run has no dead letters.
            _ = session.pipeline_id
            session.bind()
            jobs = LetterJobs(
                session, runner, on_progress=lambda step: context.log.info(f"{step.phase}: {step.message}")
            )
            report = jobs.replay(wanted)
            for landed in report.commits:
                yield dg.AssetMaterialization(
                    table_key(pipeline, landed.table),
                    metadata=metadata.of_commit(landed, time.time_ns() // 1_000_000),
                    tags=metadata.tags_of_table(landed, batches_key(pipeline)),
                )
            context.log.info(f"{report.table}: {report.ended}; {report.still_bad:,} still bad")
            if report.verdict is Verdict.STALE:
                raise RetriableError(f"{report.table}: {report.ended}", hint="run again when other range jobs are over")
            yield dg.Output(None, metadata=_of_replay(report))

    @dg.job(
        name=job_name(pipeline, REPLAY),
        description=description,
        tags={**run_tags(pipeline, REPLAY), "dagster/max_runtime": most_s},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        replay()

    return job


def _of_replay(report: "LettersReport") -> dict[str, Any]:
    return {
        "moved": report.moved,
        "still bad": report.still_bad,
        "not tried": sum(report.left.values()),
        **{f"not tried: {why}": number for why, number in report.left.items()},
        "range jobs": list(report.jobs),
        "ended": report.ended,
    }

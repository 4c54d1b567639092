"""The opened mirror of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from calve.orchestration.dagster.common.runs import Context, answer_known, failures_told, made_by
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.spark_jobs.session import Started


@contextmanager
def run_plane(
    context: Context, pipeline: MirrorPipeline, spark: Callable[[], Started] | None = None
) -> Generator[MirrorPlane]:
    """The mirror of a run, which tells its failures. `spark` starts its Spark."""
    # Imported late: definitions are loaded without what a run needs.
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.spark_jobs.slots import on_spark

    with (
        failures_told(context.instance, context.run, pipeline),
        on_spark(MirrorPlane, pipeline, spark=spark, made_by=made_by(context.run)) as plane,
        answer_known(context, plane),
    ):
        yield plane

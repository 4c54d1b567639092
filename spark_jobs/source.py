"""A source whose slots run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.tasks import TasksBySize
from calve.spark_jobs.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def plane_on_spark(
    pipeline: SourcePipeline, *, spark: Callable[[], SparkSession] | None = None, made_by: str = ""
) -> Generator[SourcePlane]:
    """An open source whose small work one slot does in this process, the rest on its Spark, which the first of it
    starts.

    `made_by` as in `ControlPlane`, `spark` as `session` of `SparkTasks`.
    """
    with SparkTasks(pipeline.spark, session=spark) as on_spark:
        by_size = TasksBySize(on_spark, pipeline.config.batch.spark_from_records)
        with SourcePlane(pipeline, tasks=by_size, made_by=made_by) as plane:
            yield plane

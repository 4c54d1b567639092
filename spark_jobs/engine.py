"""The engine of a sink on Spark, and a session with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.iceberg.commit.merge import MergeWork
from calve.sink_core.sink.loop.engine import BySize, Slices
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult
from calve.spark_jobs.tasks import SparkTasks
from calve.spark_jobs.writing import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine(SparkTasks):
    """Tasks of a sink on Spark."""

    def write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        """As of `Engine`; rows of distributed tables go through Spark's shuffle."""
        if tasks and spec.is_distributed:
            from calve.spark_jobs.shuffle import run_shuffled

            return run_shuffled(spec, tasks, self.session, self.parallelism())
        return self.run(partial(write, spec, tuple(tasks)), len(tasks))

    @property
    def merge(self) -> Callable[[MergeWork], None]:
        """Merges changes by Iceberg's `MERGE INTO`."""
        from calve.spark_jobs.merge import merge_into

        return lambda work: merge_into(self.session, work)


@contextmanager
def session_on_spark(
    pipeline: SinkPipeline, *, spark: Callable[[], SparkSession] | None = None, made_by: str = ""
) -> Generator[Session]:
    """An open pipeline whose small work is done in this process, the rest on its Spark, which the first of it starts.

    `made_by` as in `Session.open`, `spark` as `session` of `SparkEngine`.
    """
    with SparkEngine(pipeline.spark, session=spark) as engine:
        by_size = BySize(engine, pipeline.config.batch.spark_from_records)
        with Session.open(pipeline, engine=by_size, made_by=made_by) as session:
            yield session

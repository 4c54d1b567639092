"""The engine of a sink on Spark, and a session with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.iceberg.commit.merge import MergeWork
from calve.sink_core.sink.loop.engine import BySize, Slices
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult
from calve.sink_core.tasks import Job, WorkerDied, WrittenBy
from calve.spark_jobs.session import Started
from calve.spark_jobs.tasks import SparkTasks
from calve.spark_jobs.writing import write


class SparkEngine(SparkTasks):
    """Tasks of a sink on Spark."""

    def write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        """As of `Engine`; rows of distributed tables go through Spark's shuffle. Where a process of Spark's dies over
        it, perhaps of a record, it is done once more with care.
        """
        try:
            return self._write(spec, tasks)
        except WorkerDied:
            if spec.careful:
                raise
        return self._write(replace(spec, careful=True), tasks)

    def _write(self, spec: IngestSpec, tasks: Sequence[Slices]) -> list[TaskResult]:
        if tasks and spec.is_distributed:
            from calve.spark_jobs.shuffle import run_shuffled

            def shuffled(started: Started) -> list[TaskResult]:
                return run_shuffled(spec, tasks, started.session, self.parallelism())

            return self.on_spark(shuffled, _job(spec, tasks))
        return self.run(partial(write, spec, tuple(tasks)), len(tasks), job=_job(spec, tasks))

    @property
    def merge(self) -> Callable[[MergeWork], None]:
        """Merges changes by Iceberg's `MERGE INTO`."""
        from calve.spark_jobs.merge import merge_into

        def merge(work: MergeWork) -> None:
            # It may have landed: whoever tries again looks first.
            self.on_spark(lambda started: merge_into(started.session, work), again=False)

        return merge

    def writer(self, spec: IngestSpec, tasks: Sequence[Slices]) -> WrittenBy:  # noqa: ARG002 - as all engines
        return self.written_by(len(tasks))


def _job(spec: IngestSpec, tasks: Sequence[Slices]) -> Job:
    offsets = sum(part.span for slices in tasks for part in slices)
    return Job(spec.group, spec.batch_id, f"{spec.group}: batch {spec.batch_id}, {offsets:,} offsets")


@contextmanager
def session_on_spark(
    pipeline: SinkPipeline, *, spark: Callable[[], Started] | None = None, made_by: str = ""
) -> Generator[Session]:
    """An open pipeline whose small work is done in this process, the rest on its Spark, which the first of it starts.

    `made_by` as in `Session.open`, `spark` as `begin` of `SparkEngine`.
    """
    with SparkEngine(pipeline.spark, begin=spark) as engine:
        by_size = BySize(engine, pipeline.config.batch.spark_from_records)
        with Session.open(pipeline, engine=by_size, made_by=made_by) as session:
            yield session

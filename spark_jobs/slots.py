"""A pipeline whose slots run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from calve.sink_core.control.slots.plane import SlotPlane
from calve.sink_core.tasks import Tasks, TasksBySize
from calve.spark_jobs.session import Started
from calve.spark_jobs.tasks import SparkTasks

P_co = TypeVar("P_co", bound=SlotPlane[Any, Any], covariant=True)


class Opens(Protocol[P_co]):
    """The control plane of a kind."""

    def __call__(self, pipeline: Any, *, tasks: Tasks, made_by: str) -> P_co: ...


@contextmanager
def on_spark(
    opens: Opens[P_co], pipeline: Any, *, spark: Callable[[], Started] | None = None, made_by: str = ""
) -> Generator[P_co]:
    """An open pipeline whose small work one slot does in this process, the rest on its Spark, which the first of it
    starts.

    `made_by` as in `ControlPlane`, `spark` as `begin` of `SparkTasks`.
    """
    with SparkTasks(pipeline.spark, begin=spark) as tasks:
        by_size = TasksBySize(tasks, pipeline.config.batch.spark_from_records)
        with opens(pipeline, tasks=by_size, made_by=made_by) as plane:
            yield plane

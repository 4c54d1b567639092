"""How a run opens a pipeline: each kind has its own control plane, and what it opens beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from calve.orchestration.dagster.common.runs import Context

if TYPE_CHECKING:
    from calve.sink_core.control.plane import AnyPlane
    from calve.spark_jobs.session import Started

P_co = TypeVar("P_co", bound="AnyPlane", covariant=True)


class Opens(Protocol[P_co]):
    """Opens a pipeline of one kind for a run, which tells its failures; what is written names the run. `spark` starts
    the run's Spark.
    """

    def __call__(
        self, context: Context, pipeline: Any, spark: Callable[[], Started] | None = None
    ) -> AbstractContextManager[P_co]: ...

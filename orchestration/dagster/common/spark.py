"""The Spark session of a run, started with its first batch: a run with nothing to read pays for none."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.names import resource_key
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.errors import CalveError

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource
    from pyspark.sql import SparkSession

    from calve.spark_jobs.session import Started


def own_resources(pipeline: Pipeline) -> dict[str, dg.ResourceDefinition]:
    """The resources of the pipeline's jobs. A job that names none is given those of all pipelines in its location."""
    return {resource_key(pipeline): spark_resource(pipeline.spark)}


def spark_resource(settings: SparkSettings) -> dg.ResourceDefinition:
    """dagster-pyspark's lazy resource for a pipeline's `spark`.

    A function rather than the resource itself, whose configuration Dagster would store and show: references are
    resolved in the run's process, and `dagster_pyspark` is imported there.
    """

    @dg.resource(description="The pipeline's Spark session.")
    def spark() -> Generator[LazySpark]:
        with ExitStack() as held:
            yield LazySpark(settings, held)

    return spark


class LazySpark:
    """Has a `spark_session` as dagster-pyspark's resources do, and does nothing before it is asked for.

    What is wrong with the settings, a variable that isn't set say, so shows in the op, which tells it as its other
    errors. `held` ends what was started.
    """

    def __init__(self, settings: SparkSettings, held: ExitStack) -> None:
        self._settings = settings
        self._held = held

    @cached_property
    def spark_session(self) -> SparkSession:
        return self.start().session

    def start(self) -> Started:
        """The warm Spark of these settings where there is one, else one of this process, which ends with the run."""
        from calve.spark_jobs.session import Started, running_or_warm

        if (there := running_or_warm(self._settings)) is None:
            return Started.given(self._own.spark_session)
        self._held.callback(there.stop)
        return there

    @cached_property
    def _own(self) -> LazyPySparkResource:
        return self._held.enter_context(_lazy(self._settings))


def start_of(resource: LazySpark | LazyPySparkResource) -> Callable[[], Started]:
    """A function that starts Spark when it is needed. Of a resource that the user put there its session is taken."""
    if isinstance(resource, LazySpark):
        return resource.start

    def start() -> Started:
        from calve.spark_jobs.session import Started

        return Started.given(resource.spark_session)

    return start


def keep_warm(pipeline: Pipeline) -> str:
    """Have a warm Spark up for a pipeline of this machine whose batches go to Spark; a line that says what was done, ""
    if nothing was. Its start is not waited for.
    """
    from calve.spark_jobs import warm

    if pipeline.config.batch.spark_from_records or not (pipeline.spark.master or "").startswith("local"):
        return ""
    try:
        return warm.keep(pipeline.spark)
    except (CalveError, OSError) as error:
        return f"no warm Spark: {error}"


@contextmanager
def _lazy(settings: SparkSettings) -> Generator[LazyPySparkResource]:
    from dagster_pyspark import LazyPySparkResource

    from calve.spark_jobs.session import configuration

    with configuration(settings) as conf:
        yield LazyPySparkResource(spark_config=conf)

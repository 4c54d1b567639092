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

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource
    from pyspark.sql import SparkSession


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
        return self._held.enter_context(_lazy(self._settings)).spark_session


def session_of(resource: LazySpark | LazyPySparkResource) -> Callable[[], SparkSession]:
    """What starts the session when it is needed."""
    return lambda: resource.spark_session


@contextmanager
def _lazy(settings: SparkSettings) -> Generator[LazyPySparkResource]:
    from dagster_pyspark import LazyPySparkResource

    from calve.spark_jobs.session import configuration

    with configuration(settings) as conf:
        yield LazyPySparkResource(spark_config=conf)

"""The session of a sink's run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from calve.orchestration.dagster.common.runs import Context, answer_known, failures_told, made_by
from calve.sink_core import imports
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session
    from calve.spark_jobs.session import Started


@contextmanager
def run_session(
    context: Context, pipeline: SinkPipeline, spark: Callable[[], Started] | None = None
) -> Generator[Session]:
    """The session of a run, which tells its failures; snapshots name the run. `spark` starts its Spark."""
    # Imported late: definitions are loaded without what a run needs. A search through all of it for garbage would hold
    # up a batch, again and again.
    with imports.for_good(pandas=True):
        from calve.spark_jobs.engine import session_on_spark

    with (
        failures_told(context.instance, context.run, pipeline),
        session_on_spark(pipeline, spark=spark, made_by=made_by(context.run)) as session,
        answer_known(context, session),
    ):
        yield session

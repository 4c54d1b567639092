"""What `calve resolve` opens: the answers that there are to the findings of a pipeline, by its kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.control.answers import Answers
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.sink.loop.session import Session


@contextmanager
def of_sink(pipeline: SinkPipeline) -> Generator[Answers[Session]]:
    """Those of a sink, some of which take Spark."""
    from calve.sink_core.sink.resolve.resolve import answers_of
    from calve.spark_jobs.engine import session_on_spark

    with session_on_spark(pipeline) as session:
        yield answers_of(session)


@contextmanager
def of_mirror(pipeline: MirrorPipeline) -> Generator[Answers[MirrorPlane]]:
    """Those of a mirror."""
    from calve.sink_core.mirror.answers import answers_of
    from calve.sink_core.mirror.plane import MirrorPlane

    with MirrorPlane(pipeline) as plane:
        yield answers_of(plane)

"""What `calve check` asks of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from calve.orchestration.cli.check import Checkup, last_checks

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.control.checking.checklist import Check, Outcome


def checkup(pipeline: SourcePipeline, *, spark: bool) -> Checkup:
    """Its cluster, its system, its state and its engine."""
    from calve.sink_core.source.checking import kafka_acls_lines

    return Checkup(partial(_outcomes, pipeline, spark=spark), partial(kafka_acls_lines, pipeline))


def _outcomes(pipeline: SourcePipeline, before: Callable[[Check], None], *, spark: bool) -> Iterator[Outcome]:
    from calve.sink_core.control.checking.checklist import answers
    from calve.sink_core.control.checking.executors import Probe
    from calve.sink_core.source.checking import SourceChecks

    settings = {f"kafka {pipeline.kafka.name}": dict(pipeline.kafka.properties)}
    last = last_checks(pipeline, lambda: Probe(settings), spark=spark)
    with closing(SourceChecks(pipeline)) as source:
        yield from answers([*source.checks(), *last], before=before)

"""What `calve check` asks of a mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from calve.orchestration.cli.check import Checkup, last_checks

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.control.checking.checklist import Check, Outcome


def checkup(pipeline: MirrorPipeline, *, spark: bool) -> Checkup:
    """Both clusters, its state and its engine."""
    from calve.sink_core.mirror.acls import kafka_acls_lines

    return Checkup(partial(_outcomes, pipeline, spark=spark), partial(kafka_acls_lines, pipeline))


def _outcomes(pipeline: MirrorPipeline, before: Callable[[Check], None], *, spark: bool) -> Iterator[Outcome]:
    from calve.sink_core.control.checking.checklist import answers
    from calve.sink_core.control.checking.executors import Probe
    from calve.sink_core.mirror.checking import MirrorChecks

    config = pipeline.config
    settings = {
        f"kafka {config.source_alias}": dict(pipeline.source.properties),
        f"kafka {config.target_alias}": dict(pipeline.kafka.properties),
    }
    last = last_checks(pipeline, lambda: Probe(settings), spark=spark)
    yield from answers([*MirrorChecks(pipeline).checks(), *last], before=before)

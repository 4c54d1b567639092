"""Asset checks of a mirror: after each run within it, and on a schedule in a job of their own."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.checks import check_specs, checks_op, told_by_run
from calve.orchestration.dagster.common.verdicts import Verdict
from calve.orchestration.dagster.mirror import verdicts
from calve.orchestration.dagster.mirror.names import asset_key
from calve.orchestration.dagster.mirror.plane import run_plane
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.mirror.plane import MirrorPlane


def checks_of(pipeline: MirrorPipeline) -> dg.AssetChecksDefinition:
    """All of them."""
    specs = check_specs(pipeline, ((check, asset_key(pipeline, None)) for check in verdicts.CHECKS))
    return checks_op(pipeline, specs, run_plane, partial(look, pipeline), partial(asset_key, pipeline))


def look(pipeline: MirrorPipeline, plane: "MirrorPlane") -> Iterator[Verdict]:
    """Every verdict; the chain once there is one."""
    from calve.sink_core.mirror.status import status
    from calve.sink_core.mirror.verify import verify

    yield from verdicts.health(pipeline, status(plane))
    if plane.log.state.last_batch_id is not None:
        yield verdicts.chain(verify(plane))


def evaluations(pipeline: MirrorPipeline, found: Iterable[Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events of a run that moves something."""
    return told_by_run(pipeline, found, partial(asset_key, pipeline))

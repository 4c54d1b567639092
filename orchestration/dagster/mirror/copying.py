"""The copy op: generations in a loop, each told to Dagster once its slots have ended."""

# Without postponed annotations: Dagster looks at `config`'s as it stands.

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common import tags
from calve.orchestration.dagster.common.moving import RunConfig, bounds_of, log_progress, say_moved
from calve.orchestration.dagster.common.names import op_name, pool, resource_key
from calve.orchestration.dagster.common.runs import held_by_pause
from calve.orchestration.dagster.common.spark import start_of
from calve.orchestration.dagster.mirror import checks, metadata, specs
from calve.orchestration.dagster.mirror.names import COPY, asset_key
from calve.orchestration.dagster.mirror.plane import run_plane
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.errors import CalveError

if TYPE_CHECKING:
    from calve.sink_core.control.rounds import Bounds
    from calve.sink_core.mirror.batches import CopyReport
    from calve.sink_core.mirror.plane import MirrorPlane

Told = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[Any]


def copy_of(pipeline: MirrorPipeline) -> dg.AssetsDefinition:
    """The owner of the copy and of the remote topics. "Materialize" on one of them copies whatever is pending."""

    @dg.multi_asset(
        name=op_name(pipeline, COPY),
        specs=[specs.copy(pipeline), *specs.remotes(pipeline)],
        pool=pool(pipeline, COPY),
        required_resource_keys={resource_key(pipeline)},
        can_subset=False,
    )
    def copy(context: dg.AssetExecutionContext, config: RunConfig) -> Iterator[Told]:
        start = start_of(getattr(context.resources, resource_key(pipeline)))
        with run_plane(context, pipeline, start) as plane:
            yield from _through(context, pipeline, plane, bounds_of(pipeline, config))

    return copy


def _through(
    context: dg.AssetExecutionContext, pipeline: MirrorPipeline, plane: "MirrorPlane", bounds: "Bounds"
) -> Iterator[Told]:
    from calve.sink_core.mirror.run import MirrorReport, run_steps

    report = MirrorReport()
    for batch in run_steps(plane, report, bounds=bounds, on_progress=partial(log_progress, context)):
        yield from _told(pipeline, batch)
    if not held_by_pause(context, pipeline, plane.log.state.paused) or report.batches:
        copied = [batch for batch in report.batches if batch.ranges]
        say_moved(context, report.records, len(copied), report.ended, (each.written_by for each in copied))
    try:
        found = checks.look(pipeline, plane)
    except CalveError as error:
        # Without them a run is still a good run.
        context.log.warning(f"the checks could not be made: {error}")
    else:
        yield from checks.evaluations(pipeline, found)


def _told(pipeline: MirrorPipeline, batch: "CopyReport") -> Iterator[dg.AssetMaterialization]:
    """One materialization of the copy, and of each remote topic that got something."""
    if not batch.ranges:
        return
    copy, now_ms = asset_key(pipeline, None), time.time_ns() // 1_000_000
    yield dg.AssetMaterialization(copy, metadata=metadata.of_batch(batch), tags=tags.of_version())
    for remote, ranges in sorted(metadata.by_topic(batch).items()):
        yield dg.AssetMaterialization(
            asset_key(pipeline, remote),
            metadata=metadata.of_topic(batch, pipeline.source_of(remote) or "", ranges, now_ms),
            tags=tags.following(copy),
        )

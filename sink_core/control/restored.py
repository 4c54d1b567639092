"""Events that a checkpoint stands for, made again from it. Pure."""

from __future__ import annotations

from sink_core.control.events import Checkpoint, Paused, PipelineBound, Resumed


def bound(event: Checkpoint) -> PipelineBound:
    """The first binding of all."""
    return PipelineBound(
        pipeline_id=event.pipeline_id,
        event_id=event.event_id,
        written_at_ms=event.written_at_ms,
        calve_version=event.calve_version,
        pipeline=event.pipeline,
        deployment=event.deployment,
        catalog_fingerprint=event.catalog_fingerprint,
        cluster_id=event.cluster_id,
        control_topic_id=event.control_topic_id,
    )


def paused(event: Checkpoint) -> Paused | None:
    """The pause in effect, with its reason and its time."""
    if event.paused_by is None:
        return None
    return Paused(
        pipeline_id=event.pipeline_id,
        event_id=event.event_id,
        written_at_ms=event.paused_at_ms or event.written_at_ms,
        calve_version=event.calve_version,
        by=event.paused_by,
        reason=event.paused_reason or "paused before the last checkpoint",
    )


def resumed(event: Checkpoint) -> Resumed | None:
    """The last resume."""
    if event.resumed_by is None:
        return None
    return Resumed(
        pipeline_id=event.pipeline_id,
        event_id=event.event_id,
        written_at_ms=event.resumed_at_ms,
        calve_version=event.calve_version,
        by=event.resumed_by,
    )

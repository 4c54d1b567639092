"""Events that a checkpoint stands for, made again from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from calve.sink_core.control.events import Checkpoint, CheckpointPart, Paused, PipelineBound, Resumed
from calve.sink_core.control.range_parts import RangeJob


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


def range_jobs(parts: Iterable[CheckpointPart]) -> tuple[RangeJob, ...]:
    """Those that `checkpoint.in_parts` has spread, in their order."""
    jobs: dict[tuple[str, str], RangeJob] = {}
    for job in (job for part in parts for job in part.range_jobs):
        begun = jobs.get((job.batch_id, job.table))
        jobs[job.batch_id, job.table] = replace(begun, ranges=begun.ranges + job.ranges) if begun else job
    return tuple(jobs.values())

"""A checkpoint's range jobs in several events: one message could not hold those of any number. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from calve.sink_core.tables.log.events import CheckpointPart, TableCheckpoint
from calve.sink_core.tables.log.range_parts import RangeJob

MOST_RANGES = 5_000
"""Of range jobs in one event, each job counted as one more: some hundred kilobytes of the megabyte that it may have."""


def in_parts(checkpoint: TableCheckpoint, most: int = MOST_RANGES) -> tuple[Sequence[CheckpointPart], TableCheckpoint]:
    """The checkpoint without the range jobs that don't fit into it, and events that hold these, to be written first."""
    parts: list[list[RangeJob]] = [[]]
    room = most
    for job in checkpoint.range_jobs:
        left = job.ranges
        while True:
            if room < 2:
                parts.append([])
                room = most
            taken, left = left[: room - 1], left[room - 1 :]
            parts[-1].append(replace(job, ranges=taken))
            room -= 1 + len(taken)
            if not left:
                break
    if len(parts) == 1:
        return (), checkpoint
    events = [
        CheckpointPart(pipeline_id=checkpoint.pipeline_id, checkpoint_id=checkpoint.event_id, range_jobs=tuple(jobs))
        for jobs in parts
    ]
    return events, replace(checkpoint, range_jobs=(), parts=len(events))


def joined(parts: Iterable[CheckpointPart]) -> tuple[RangeJob, ...]:
    """The range jobs that `in_parts` has spread, in their order."""
    jobs: dict[tuple[str, str], RangeJob] = {}
    for job in (job for part in parts for job in part.range_jobs):
        begun = jobs.get((job.batch_id, job.table))
        jobs[job.batch_id, job.table] = replace(begun, ranges=begun.ranges + job.ranges) if begun else job
    return tuple(jobs.values())

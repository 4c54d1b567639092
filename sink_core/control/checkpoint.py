"""The fold of the log as one event, so that what it was made from can be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from calve.sink_core.control.events import Checkpoint, CheckpointPart
from calve.sink_core.control.range_parts import RangeJob
from calve.sink_core.control.state import CommitState
from calve.sink_core.offsets import offsets_to_dense

Stored = Mapping[str, Mapping[str, int]]
"""By table and UUID the control offset (exclusive) up to which the table has taken events in."""


MOST_RANGES = 5_000
"""Of range jobs in one event, each job counted as one more: some hundred kilobytes of the megabyte that it may have."""


def in_parts(checkpoint: Checkpoint, most: int = MOST_RANGES) -> tuple[Sequence[CheckpointPart], Checkpoint]:
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


def checkpoint_of(
    state: CommitState, *, delete_below: int, stored: Stored, open_findings: Iterable[str] = ()
) -> Checkpoint:
    """What stands for every event below `state.next_offset` once those below `delete_below` are gone.

    `stored` is what the tables themselves say: a coordinator may have died before it told, and a table that is put back
    to an older state later must be seen to lack what can't be taken in again. Raises ValueError for a log without a
    binding or a publish.
    """
    bound, last = state.bound, state.last_publish
    if bound is None or last is None:
        raise ValueError("the log has no binding or no publish")
    paused, resumed = state.paused, state.resumed
    return Checkpoint(
        pipeline_id=bound.pipeline_id,
        up_to_offset=state.next_offset,
        pipeline=bound.pipeline,
        deployment=bound.deployment,
        catalog_fingerprint=bound.catalog_fingerprint,
        cluster_id=bound.cluster_id,
        control_topic_id=bound.control_topic_id,
        paused_by=paused.by if paused else None,
        last_complete_batch_id=state.last_batch_id,
        positions=last.positions,
        topic_ids=last.topic_ids,
        through_ms=offsets_to_dense(state.through_ms),
        told=_told(state, stored),
        open_findings=tuple(open_findings),
        paused_reason=paused.reason if paused else "",
        paused_at_ms=paused.written_at_ms if paused else 0,
        resumed_by=resumed.by if resumed else None,
        resumed_at_ms=resumed.written_at_ms if resumed else 0,
        resolved_at_ms=state.resolved_ms,
        valid_through_ms=state.valid_through_ms(state.next_offset) or 0,
        begins=offsets_to_dense(state.begins),
        former_positions=_former_positions(state),
        former_topic_ids={topic: i for topic, i in state.topic_ids.items() if topic not in last.topic_ids},
        batches=state.published,
        last_events=_last_events(state, delete_below),
        fed=dict(state.fed),
        range_jobs=tuple(state.range_jobs.values()),
        delete_below=delete_below,
    )


def _told(state: CommitState, stored: Stored) -> dict[str, dict[str, int]]:
    told = {table: dict(by_uuid) for table, by_uuid in state.told.items()}
    for table, by_uuid in stored.items():
        for uuid, offset in by_uuid.items():
            if offset > state.told_offset(table, uuid):
                told.setdefault(table, {})[uuid] = offset
    return told


def _former_positions(state: CommitState) -> dict[str, tuple[int, ...]]:
    """The last positions of topics that were taken out of the file: they go on from there if they are put back."""
    now = state.positions() or {}
    return offsets_to_dense({at: position for at, position in state.partitions.items() if at not in now})


def _last_events(state: CommitState, delete_below: int) -> dict[str, tuple[str, ...]]:
    """Ids of the last `DATA_WRITTEN` per table and UUID below `delete_below`.

    A table that has taken in more than that names one of them as its last event, or one that is left in the log:
    between the last event below and the table's offset there is none for it. Where the log itself has none of a table
    below, they are those of the checkpoints before.
    """
    last = {table: tuple(sorted(ids)) for table, ids in state.last_events.items()}
    for table, written in state.written.items():
        by_uuid = {logged.event.table_uuid: logged.event.event_id for logged in written if logged.offset < delete_below}
        if by_uuid:
            last[table] = tuple(sorted(by_uuid.values()))
    return last

"""The fold of any log as one event, so that what it was made from can be deleted, and what must stay. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calve.sink_core.control.events import Checkpoint, Event, PipelineBound
from calve.sink_core.control.state import AnyState
from calve.sink_core.offsets import offsets_to_dense


@dataclass(frozen=True, slots=True)
class Kept:
    """Events from the control offset `offset` on stay, and the reason."""

    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class Needed:
    """What one kind of pipeline needs of its log: events that stay, beside those that do for every kind, and what
    stands for those below an offset: the checkpoint, and before it what belongs to it.
    """

    kept: Sequence[Kept]
    checkpoint: Callable[[int], Sequence[Event]]


def standing(bound: PipelineBound, state: AnyState) -> dict[str, Any]:
    """The fields of a checkpoint that say whose log it is, by `bound`, and which pause, resume and answer stand."""
    paused, resumed = state.paused, state.resumed
    return {
        "pipeline": bound.pipeline,
        "deployment": bound.deployment,
        "fingerprint": bound.fingerprint,
        "cluster_id": bound.cluster_id,
        "control_topic_id": bound.control_topic_id,
        "paused_by": paused.by if paused else None,
        "paused_reason": paused.reason if paused else "",
        "paused_at_ms": paused.written_at_ms if paused else 0,
        "resumed_by": resumed.by if resumed else None,
        "resumed_at_ms": resumed.written_at_ms if resumed else 0,
        "answer": state.answer,
    }


def checkpoint_of(state: AnyState, *, delete_below: int) -> Checkpoint:
    """What stands for every event below `state.next_offset` once those below `delete_below` are gone.

    Raises ValueError for a log without a binding or a publish.
    """
    bound, last = state.bound, state.last_publish
    if bound is None or last is None:
        raise ValueError("the log has no binding or no publish")
    now = state.positions() or {}
    return Checkpoint(
        **standing(bound, state),
        pipeline_id=bound.pipeline_id,
        up_to_offset=state.next_offset,
        last_complete_batch_id=state.last_batch_id,
        positions=last.positions,
        topic_ids=last.topic_ids,
        # Topics that are no longer read go on from there if they are put back.
        former_positions=offsets_to_dense({at: offset for at, offset in state.partitions.items() if at not in now}),
        former_topic_ids={topic: i for topic, i in state.topic_ids.items() if topic not in last.topic_ids},
        delete_below=delete_below,
    )

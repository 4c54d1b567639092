"""The answer to a control topic of a mirror that was created again, lost events or holds those of others: it is made
anew from the positions, which are all that exactly once needs.

In this order, so that a finding stands until the end:

1. append a binding, delete every event: from here on the topic is "truncated"
2. a new token, then the fence of every slot id that there may have been: no task can move a position any more
3. one transaction with a checkpoint that stands for everything, and the positions as they are

Crash points (the whole table is in docs/design.md):

    resolve.after-delete  the control topic is empty: truncated, which `rebuild` answers
    resolve.after-token   as above; positions are as they were
    publish.*             checkpoint and positions are there together or not at all
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.control.checkpoint import standing
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import describe_topics
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.events import MirrorCheckpoint
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.offsets import Position, Positions, offsets_to_dense

MOST_SLOTS = 64
"""So many slot ids are fenced where the log no longer says how many there were."""


def rebuild(plane: MirrorPlane, found: FindingError) -> Answer:
    """Make the control topic anew. Refused if a position is missing: nothing else says what was copied."""
    now = plane.group.positions(plane.source_partitions())
    _check_complete(plane, found, now)
    would = (
        f"{plane.log.topic}: made anew from the {len(now):,} positions of group {plane.pipeline.group}, which stay",
        "what was copied is no longer proven by digests, and groups are translated for what is copied from then on",
    )
    return Answer(would, lambda: _carry_out(plane, found))


def _check_complete(plane: MirrorPlane, found: FindingError, now: Positions) -> None:
    missing = sorted(at for at in plane.source_partitions() if at not in now)
    if missing:
        raise no_answer(
            found, "rebuild", f"the group has no position for {missing[0]}, nor for {len(missing) - 1} more"
        )


def _carry_out(plane: MirrorPlane, found: FindingError) -> Lines:
    log, token, generation = plane.log, plane.publisher.token, str(uuid.uuid4())
    slots = max(MOST_SLOTS, log.state.most_slots)
    with log.about_to_replace():
        plane.publisher.fence_and_read([])
        log.append(plane.new_binding())
        end = log.refresh_to_end().next_offset
        known, bound = standing(plane.new_binding(), log.state), log.state.bound
        log.delete_below(end)
    reach("resolve.after-delete")
    log.close()
    plane.publisher.publish(lambda *_: Decision(Verdict.PUBLISH, ""), [], {token: Position(0, generation)})
    reach("resolve.after-token")
    plane.leader.fence(slots)
    positions = plane.group.positions([*plane.source_partitions(), token])
    if positions.pop(token, Position(0, "")).metadata != generation:
        raise overtaken(plane, "another run leads")
    _check_complete(plane, found, positions)
    event = _checkpoint(plane, positions, generation, known, bound, end=end, slots=slots)

    def decide(read: Positions, state: MirrorState) -> Decision:
        if state.last_batch_id == generation:
            return Decision(Verdict.ALREADY_PUBLISHED, "an earlier try landed")
        if state.last_batch_id is not None or read.get(token, Position(0, "")).metadata != generation:
            return Decision(Verdict.STALE, "another run leads")
        return Decision(Verdict.PUBLISH, "")

    placed = {at: Position(position.offset, generation) for at, position in positions.items()}
    decision = plane.publisher.publish(decide, [event], {**placed, token: Position(0, generation)})
    if decision.verdict is Verdict.STALE:
        raise overtaken(plane, decision.why)
    log.refresh_to_end()
    return (f"{log.topic} begins at {end} with a checkpoint of {len(placed):,} positions",)


def _checkpoint(
    plane: MirrorPlane,
    positions: Positions,
    generation: str,
    known: dict[str, Any],
    bound: PipelineBound | None,
    *,
    end: int,
    slots: int,
) -> MirrorCheckpoint:
    """What stands for every event below `end`; `known` and `bound` are of what could still be read before."""
    offsets = {at: position.offset for at, position in positions.items()}
    remotes = {topic: plane.pipeline.remote_of(topic) for topic in topics.selected(plane)}
    there = {at.topic for at in positions}
    source = describe_topics(plane.source_admin, remotes, timeout_s=ADMIN_TIMEOUT_S)
    remote = describe_topics(plane.admin, there, timeout_s=ADMIN_TIMEOUT_S)
    return MirrorCheckpoint(
        **known,
        pipeline_id=(bound or plane.new_binding()).pipeline_id,
        up_to_offset=end,
        last_complete_batch_id=generation,
        positions=offsets_to_dense(offsets),
        topic_ids={name: topic.topic_id for name, topic in remote.items()},
        delete_below=end,
        most_slots=slots,
        kept_ms=time.time_ns() // 1_000_000,
        upstream_ids={name: topic.topic_id for name, topic in source.items() if remotes[name] in there},
        begins=offsets_to_dense(offsets),
        records=offsets_to_dense(dict.fromkeys(offsets, 0)),
        target_ends={},
    )

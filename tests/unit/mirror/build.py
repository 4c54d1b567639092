"""A mirror's events with the fields a test does not care about filled in, and logs made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calve.sink_core.control.events import Event, PipelineBound
from calve.sink_core.control.slots.events import GenerationEnded, GenerationStarted, PositionsKept, PositionsSet
from calve.sink_core.mirror.events import CopiedRange, RecordsCopied
from calve.sink_core.mirror.state import MIRROR, MirrorState
from calve.sink_core.offsets import TopicPartition, offsets_to_dense

PIPELINE_ID = "7c9d"
REMOTE = "eu.orders"
ZERO, ONE = TopicPartition(REMOTE, 0), TopicPartition(REMOTE, 1)

BOUND = PipelineBound(
    pipeline_id=PIPELINE_ID,
    pipeline="m",
    deployment="prod",
    fingerprint="source cluster 1",
    cluster_id="target",
    control_topic_id="topic-1",
)


def started(
    generation: str,
    starts: Mapping[TopicPartition, int] | None = None,
    *,
    slots: int = 1,
    upstream_ids: Mapping[str, str] | None = None,
) -> GenerationStarted:
    return GenerationStarted(
        pipeline_id=PIPELINE_ID,
        batch_id=generation,
        predecessor="",
        slots=slots,
        positions=offsets_to_dense(starts or {}),
        topic_ids={at.topic: f"id of {at.topic}" for at in starts or {}},
        upstream_ids=upstream_ids or {},
    )


def ended(generation: str) -> GenerationEnded:
    return GenerationEnded(pipeline_id=PIPELINE_ID, batch_id=generation, why="done")


def kept(generation: str) -> PositionsKept:
    return PositionsKept(pipeline_id=PIPELINE_ID, batch_id=generation)


def moved_by_hand(generation: str, positions: Mapping[TopicPartition, int]) -> PositionsSet:
    return PositionsSet(
        pipeline_id=PIPELINE_ID, batch_id=generation, positions=offsets_to_dense(positions), by="u", reason="r"
    )


def part(at: TopicPartition, start: int, offsets: Sequence[int], end: int, first: int = 0) -> CopiedRange:
    """Of records at source `offsets`, each 10 bytes, from the target's offset `first` on."""
    segments: list[int] = []
    for offset in offsets:
        if segments and segments[-2] + segments[-1] == offset - start:
            segments[-1] += 1
        else:
            segments += [offset - start, 1]
    return CopiedRange(
        topic=at.topic,
        partition=at.partition,
        start=start,
        end=end,
        first=first if offsets else -1,
        records=len(offsets),
        bytes=10 * len(offsets),
        digest=0,
        max_timestamp_ms=-1,
        adjusted=0,
        segments=tuple(segments),
    )


def copied(generation: str, *ranges: CopiedRange, slot: int = 0) -> RecordsCopied:
    positions = offsets_to_dense({each.at: each.end for each in ranges})
    return RecordsCopied(pipeline_id=PIPELINE_ID, batch_id=generation, slot=slot, positions=positions, ranges=ranges)


def log(*events: Event, start: int = 0) -> MirrorState:
    """The fold of a log that begins at `start`, each event a second after the one before."""
    state = MirrorState(log_start=start, next_offset=start)
    timed = (replace(event, written_at_ms=1000 * (1 + start + i)) for i, event in enumerate(events))
    return MIRROR.apply_all(state, enumerate(timed, start))

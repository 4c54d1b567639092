"""The plan of a batch: which offsets it reads and how its tasks share them. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calve.sink_core.control.shares import Limits, ceil_div, shared
from calve.sink_core.offsets import OffsetRange, Offsets
from calve.sink_core.tables.batch import BatchPlan


def plan_batch(
    *,
    batch_id: str,
    predecessor: str,
    starts: Offsets,
    ends: Offsets,
    bytes_per_record: Mapping[str, float],
    limits: Limits,
    topic_ids: Mapping[str, str],
    broker_time_ms: int,
    instant_ms: int = 0,
) -> BatchPlan | None:
    """The next batch, or None if there is nothing to read.

    Arguments and errors are those of `shared`, beside them `topic_ids`, the UUID per topic.
    """
    shares = shared(starts=starts, ends=ends, bytes_per_record=bytes_per_record, limits=limits)
    if shares is None:
        return None
    return BatchPlan(
        batch_id=batch_id,
        predecessor=predecessor,
        ranges=shares.ranges,
        tasks=cut(shares.ranges, shares.costs, shares.pieces),
        topic_ids=dict(topic_ids),
        broker_time_ms=broker_time_ms,
        estimated_bytes=shares.estimated_bytes,
        instant_ms=instant_ms,
    )


def cut(ranges: Sequence[OffsetRange], costs: Sequence[int], pieces: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges laid end to end and cut into `pieces` of equal bytes; an offset goes where its first byte lies.

    A piece thus exceeds its even share by less than one record. Pieces that fall inside one large record are left out.
    """
    total = sum(r.span * cost for r, cost in zip(ranges, costs, strict=True))
    tasks: list[list[OffsetRange]] = [[] for _ in range(pieces)]
    before = 0
    for r, cost in zip(ranges, costs, strict=True):
        at = r.start
        while at < r.end:
            piece = (before + (at - r.start) * cost) * pieces // total
            border = ceil_div((piece + 1) * total, pieces)
            stop = min(r.end, r.start + ceil_div(border - before, cost))
            tasks[piece].append(OffsetRange(r.topic, r.partition, at, stop))
            at = stop
        before += r.span * cost
    return tuple(tuple(task) for task in tasks if task)

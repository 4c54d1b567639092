"""How much of each partition is read next: shares of what is pending, within the bounds of a batch. Pure.

The same positions, ends and limits give the same shares whatever the order of the mappings. All arithmetic is on
integers, so that the bounds hold exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, ProtocolError
from calve.sink_core.offsets import OffsetRange, Offsets, TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one batch, all at least 1 (ConfigError otherwise).

    `max_records` counts offsets, `max_bytes` estimated bytes. A batch is cut into at most `max_tasks` tasks, of
    `min_task_bytes` or more each where there is more than one.
    """

    max_records: int
    max_bytes: int
    max_tasks: int
    min_task_bytes: int

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if value < 1:
                raise ConfigError(
                    f"{bound.name} is {value}, the least is 1",
                    hint=f"set `{bound.name}` to 1 or more",
                    code=Code.LEAST_ONE,
                )


@dataclass(frozen=True, slots=True)
class _Backlog:
    """What one partition has to read: offsets from `start`, each of `cost` bytes (estimated, at least 1)."""

    at: TopicPartition
    start: int
    lag: int
    cost: int

    @property
    def lag_bytes(self) -> int:
        return self.lag * self.cost


@dataclass(frozen=True, slots=True)
class Shares:
    """The next range of each partition, ordered by topic and partition, empty ones among them; `costs` are estimated
    bytes of one offset of each.
    """

    ranges: tuple[OffsetRange, ...]
    costs: tuple[int, ...]
    pieces: int
    """Into how many tasks they may be cut."""

    @property
    def estimated_bytes(self) -> int:
        return sum(r.span * cost for r, cost in zip(self.ranges, self.costs, strict=True))


def shared(*, starts: Offsets, ends: Offsets, bytes_per_record: Mapping[str, float], limits: Limits) -> Shares | None:
    """What is read next, or None if nothing is pending.

    `starts` holds the position of every partition (a new partition's log start), `ends` the LSO of the same partitions,
    `bytes_per_record` an estimate per topic that has a lag. The ranges start at the positions and never pass the ends;
    where a limit binds, each partition gets a share in proportion to its lag, and at least one offset as long as the
    limits allow it. With any lag at least one offset is read, even one above `max_bytes`.

    Raises ProtocolError if a position lies beyond its end, if `starts` and `ends` name different partitions, or if a
    topic with a lag has no usable estimate.
    """
    backlogs = _backlogs(starts, ends, bytes_per_record)
    if not any(b.lag for b in backlogs):
        return None
    spans = _shares(backlogs, limits)
    ranges = tuple(OffsetRange(*b.at, b.start, b.start + span) for b, span in zip(backlogs, spans, strict=True))
    total = sum(span * b.cost for b, span in zip(backlogs, spans, strict=True))
    pieces = min(limits.max_tasks, ceil_div(total, limits.min_task_bytes))
    return Shares(ranges, tuple(b.cost for b in backlogs), pieces)


def dealt(sized: Iterable[tuple[int, T]], hands: int) -> list[list[T]]:
    """What has a size, given to so many: in its order, each to whom has least."""
    given: list[list[T]] = [[] for _ in range(hands)]
    loads = [0] * hands
    for size, each in sized:
        least = loads.index(min(loads))
        given[least].append(each)
        loads[least] += size
    return given


def _backlogs(starts: Offsets, ends: Offsets, bytes_per_record: Mapping[str, float]) -> list[_Backlog]:
    """One per partition, ordered by topic and partition."""
    if starts.keys() != ends.keys():
        odd = min(starts.keys() ^ ends.keys())
        raise ProtocolError(
            f"{odd}: start {starts.get(odd)}, end {ends.get(odd)}: a partition needs both",
            hint="plan again: partitions were added or the topic was recreated while the offsets were read",
            code=Code.PARTITIONS_ADDED,
        )
    costs = {topic: _cost(topic, bytes_per_record) for topic in {at.topic for at in ends if ends[at] > starts[at]}}
    return [_backlog(at, starts[at], ends[at], costs.get(at.topic, 1)) for at in sorted(ends)]


def _backlog(at: TopicPartition, start: int, end: int, cost: int) -> _Backlog:
    if start > end:
        raise ProtocolError(
            f"{at}: position {start} lies beyond the end of the log {end}",
            hint="the positions were moved by others or the topic lost records: see `calve status FILE`",
            code=Code.BEYOND_END,
        )
    return _Backlog(at, start, end - start, cost)


def _cost(topic: str, bytes_per_record: Mapping[str, float]) -> int:
    estimate = bytes_per_record.get(topic, math.nan)
    if not 0 <= estimate < math.inf:
        raise ProtocolError(
            f"{topic}: has a lag, but its bytes per record are {bytes_per_record.get(topic)}",
            hint="give a finite estimate per topic, from earlier batches or a sample",
            code=Code.FAULT,
        )
    return max(1, math.ceil(estimate))


@dataclass(slots=True)
class _Room:
    """What is left of a batch's bounds while they are given out."""

    offsets: int
    size: int

    def take(self, wanted: int, cost: int) -> int:
        """As many of `wanted` offsets of `cost` bytes as there is room for."""
        taken = min(wanted, self.offsets, self.size // cost)
        self.offsets -= taken
        self.size -= taken * cost
        return taken


def _shares(backlogs: Sequence[_Backlog], limits: Limits) -> list[int]:
    """Offsets for each backlog: one each, then in proportion to the lag, then by largest remainder."""
    room = _Room(limits.max_records, limits.max_bytes)
    largest_first = sorted(range(len(backlogs)), key=lambda i: -backlogs[i].lag_bytes)
    shares = [0] * len(backlogs)

    # A proportional share alone rounds a quiet partition down to nothing for as long as another one is hot.
    for i in largest_first:
        shares[i] = room.take(min(1, backlogs[i].lag), backlogs[i].cost)
    if not any(shares):
        shares[largest_first[0]] = 1
        return shares

    rest = [b.lag - share for b, share in zip(backlogs, shares, strict=True)]
    portion = _portion(rest, [b.cost for b in backlogs], room)
    exact = [portion * lag for lag in rest]
    for i, b in enumerate(backlogs):
        shares[i] += room.take(math.floor(exact[i]), b.cost)
    for i in sorted(largest_first, key=lambda i: -(exact[i] % 1)):
        shares[i] += room.take(min(1, backlogs[i].lag - shares[i]), backlogs[i].cost)
    return shares


def _portion(lags: Sequence[int], costs: Sequence[int], room: _Room) -> Fraction:
    """The largest part of every lag that fits the room, at most 1."""
    size = sum(lag * cost for lag, cost in zip(lags, costs, strict=True))
    return min(Fraction(1), Fraction(room.offsets, max(1, sum(lags))), Fraction(room.size, max(1, size)))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)

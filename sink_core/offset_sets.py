"""Sets of offsets as roaring bitmaps, and how they are shown: as half-open ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from pyroaring import BitMap64

from calve.sink_core.offsets import OffsetRange, TopicPartition

SHOWN_RANGES = 10


def of_range(start: int, end: int) -> BitMap64:
    """The offsets `[start, end)`; empty if `end <= start`."""
    offsets = BitMap64()
    if start < end:
        offsets.add_range(start, end)
    return offsets


class Span(Protocol):
    """Offsets `[start, end)` of a partition, whatever else is said of them."""

    @property
    def at(self) -> TopicPartition: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def by_partition(parts: Iterable[Span]) -> dict[TopicPartition, BitMap64]:
    """The offsets of all ranges of each partition."""
    offsets: dict[TopicPartition, BitMap64] = {}
    for part in parts:
        offsets.setdefault(part.at, BitMap64()).update(of_range(part.start, part.end))
    return offsets


def union(sets: Iterable[Mapping[TopicPartition, BitMap64]]) -> dict[TopicPartition, BitMap64]:
    """All offsets of all sets."""
    found: dict[TopicPartition, BitMap64] = {}
    for each in sets:
        for at, offsets in each.items():
            found[at] = found.get(at, BitMap64()) | offsets
    return found


def runs(offsets: BitMap64) -> Iterator[tuple[int, int]]:
    """The maximal runs `[start, end)`, ascending; the cost grows with their number, not with their length."""
    end = 0
    while (start := next(iter(offsets.iter_equal_or_larger(end)), None)) is not None:
        end = _end_of_run(offsets, start)
        yield start, end


def ranges_of(offsets: Mapping[TopicPartition, BitMap64]) -> tuple[OffsetRange, ...]:
    """The maximal runs, by topic and partition; ranges of batches that follow each other become one."""
    return tuple(OffsetRange(*at, start, end) for at in sorted(offsets) for start, end in runs(offsets[at]))


def _end_of_run(offsets: BitMap64, start: int) -> int:
    length = 1
    while offsets.contains_range(start, start + length):
        length *= 2
    return start + bisect_left(range(length), True, key=lambda n: not offsets.contains_range(start, start + n + 1))


def shown(at: TopicPartition, offsets: BitMap64) -> tuple[str, ...]:
    """The runs as text, at most `SHOWN_RANGES` of them and a remark if there are more."""
    first = [str(OffsetRange(*at, start, end)) for start, end in islice(runs(offsets), SHOWN_RANGES + 1)]
    if len(first) <= SHOWN_RANGES:
        return tuple(first)
    return (*first[:SHOWN_RANGES], f"{at} … up to {offsets.max()}")

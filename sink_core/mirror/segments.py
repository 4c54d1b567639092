"""Which target offset a source offset became, and the other way, by runs of records whose source offsets follow each
other. Pure.

Within a range the target's offsets have no gap, so a run needs two numbers. Transaction markers, aborted records and
compaction make new runs; a topic of tiny transactions would make one for each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from calve.sink_core.mirror.events import CopiedRange

MOST_SEGMENTS = 1_000
"""An event of more runs has several as one, whose number is negative: an offset within it is translated to its first
record, never past the right one.
"""


class Runs:
    """The runs of one partition while a range of it is copied."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._counts: list[int] = []
        self._next = -1

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Source offsets of the next records, increasing."""
        if not len(offsets):
            return
        begins = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()]
        counts = np.diff([*begins, len(offsets)]).tolist()
        starts = offsets[begins].tolist()
        if starts[0] == self._next:
            self._counts[-1] += counts[0]
            starts, counts = starts[1:], counts[1:]
        self._starts += starts
        self._counts += counts
        self._next = int(offsets[-1]) + 1

    def pairs(self, start: int) -> tuple[int, ...]:
        """As an event holds them, offsets counted from `start`, thinned out to `MOST_SEGMENTS`."""
        starts, counts = self._starts, self._counts
        if len(starts) > MOST_SEGMENTS:
            every = -(-len(starts) // MOST_SEGMENTS)
            counts = (-np.add.reduceat(np.array(counts, np.int64), np.arange(0, len(counts), every))).tolist()
            starts = starts[::every]
        return tuple(value for first, count in zip(starts, counts, strict=True) for value in (first - start, count))


def translate(ranges: Sequence[CopiedRange], offset: int) -> int | None:
    """The target's offset of the first record at the source's `offset` or behind it, of ranges in their order.

    Behind the last record that was copied, up to the end of what was read, it is the target's offset behind that one.
    None for an offset before the first range, beyond the last one, or where no range held a record. Where runs were
    thinned out it may be the offset of an earlier record, at most one run before.
    """
    if not ranges or offset < ranges[0].start or offset > ranges[-1].end:
        return None
    index = bisect_right(ranges, offset, key=lambda part: part.start) - 1
    found = _within(ranges[index], offset)
    if found is not None:
        return found
    later = next((part.first for part in ranges[index + 1 :] if part.records), None)
    return later if later is not None else next((part.last for part in reversed(ranges) if part.records), None)


def translate_back(ranges: Sequence[CopiedRange], offset: int) -> int | None:
    """The source's offset of the first record at the target's `offset` or behind it, of ranges in their order.

    Of an offset behind the last record it is the end of what was read: all before it is on the target. None for an
    offset before the first record, or where no range held one. Where runs were thinned out it is a bound, at or before
    the right one.
    """
    filled = [part for part in ranges if part.records]
    if not filled or offset < filled[0].first:
        return None
    index = bisect_right(filled, offset, key=lambda part: part.first) - 1
    part = filled[index]
    if offset < part.last:
        return _source_of(part, offset - part.first)
    return _source_of(filled[index + 1], 0) if index + 1 < len(filled) else ranges[-1].end


def unbroken(ranges: Sequence[CopiedRange]) -> Sequence[CopiedRange]:
    """Those since the position was last moved back, by hand: what came before was copied once more."""
    for index in range(len(ranges) - 1, 0, -1):
        if ranges[index].start < ranges[index - 1].end:
            return ranges[index:]
    return ranges


def _source_of(part: CopiedRange, record: int) -> int:
    """The source's offset of a range's n-th record. Of one in a run that stands for several it is a bound: each record
    is at least one offset behind the one before.
    """
    for start, count in zip(part.segments[::2], part.segments[1::2], strict=True):
        if record < abs(count):
            return part.start + start + record
        record -= abs(count)
    return part.end


def _within(part: CopiedRange, offset: int) -> int | None:
    """None if no record of the range is at the offset or behind it."""
    if not part.records:
        return None
    starts, counts = part.segments[::2], part.segments[1::2]
    relative = offset - part.start
    run = bisect_right(starts, relative) - 1
    if run < 0:
        return part.first
    first = part.first + sum(map(abs, counts[:run]))
    inside, count = relative - starts[run], counts[run]
    if count < 0:
        return first
    if inside < count:
        return first + inside
    return first + count if run + 1 < len(starts) else None

"""Which slot copies which range. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.control.shares import Shares, dealt
from calve.sink_core.offsets import OffsetRange

Ranges = tuple[OffsetRange, ...]


def by_slot(shares: Shares, slots: int) -> list[Ranges]:
    """The ranges that are not empty, given to at most `slots` slots: largest first, to whom has least.

    A partition is one slot's in a batch, never two's: its records would not keep their order.
    """
    sized = [(r.span * cost, r) for r, cost in zip(shares.ranges, shares.costs, strict=True) if r.span]
    largest_first = sorted(sized, key=lambda each: (-each[0], each[1]))
    given = dealt(largest_first, max(1, min(slots, shares.pieces, len(sized))))
    return [tuple(sorted(ranges)) for ranges in given if ranges]


def spans(given: Sequence[Ranges]) -> int:
    """Offsets in all of them."""
    return sum(part.span for ranges in given for part in ranges)

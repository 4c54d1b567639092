"""Offsets of the source and of the target, held against records that were copied one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.mirror import segments
from calve.sink_core.mirror.events import CopiedRange
from calve.sink_core.mirror.segments import Runs, translate, translate_back, unbroken

GAPS = st.integers(1, 4)
"""From the offset of a record to that of the next."""


def copied(start: int, end: int, first: int, offsets: Sequence[int]) -> CopiedRange:
    runs = Runs()
    runs.add(np.array(offsets, np.int64))
    return CopiedRange(
        topic="t",
        partition=0,
        start=start,
        end=end,
        first=first if offsets else -1,
        records=len(offsets),
        bytes=0,
        digest=0,
        max_timestamp_ms=-1,
        adjusted=0,
        segments=runs.pairs(start),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[CopiedRange], dict[int, int]]:
    """Ranges that follow each other, and the target's offset of each record by that at the source."""
    source, target = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    ranges: list[CopiedRange] = []
    places: dict[int, int] = {}
    for gaps in draw(st.lists(st.lists(GAPS, max_size=12), min_size=1, max_size=5)):
        offsets = [source + sum(gaps[: n + 1]) - 1 for n in range(len(gaps))]
        end = (offsets[-1] + 1 if offsets else source) + draw(st.integers(1, 3))
        ranges.append(copied(source, end, target, offsets))
        places |= {offset: target + n for n, offset in enumerate(offsets)}
        # The marker of a transaction, or several.
        source, target = end, target + len(offsets) + draw(st.integers(1, 3))
    return ranges, places


@given(histories())
def test_a_source_offset_becomes_that_of_the_first_record_there_or_behind(
    history: tuple[list[CopiedRange], dict[int, int]],
) -> None:
    ranges, places = history
    behind = max(places.values()) + 1 if places else None
    for offset in range(ranges[0].start, ranges[-1].end + 1):
        assert translate(ranges, offset) == next((there for at, there in places.items() if at >= offset), behind)
    assert translate(ranges, ranges[0].start - 1) is None
    assert translate(ranges, ranges[-1].end + 1) is None


@given(histories())
def test_a_target_offset_becomes_that_of_the_first_record_there_or_behind_or_the_end(
    history: tuple[list[CopiedRange], dict[int, int]],
) -> None:
    ranges, places = history
    if not places:
        assert translate_back(ranges, 0) is None
        return
    first = min(places.values())
    assert translate_back(ranges, first - 1) is None
    for offset in range(first, max(places.values()) + 4):
        expected = next((at for at, there in places.items() if there >= offset), ranges[-1].end)
        assert translate_back(ranges, offset) == expected


def test_thinned_out_runs_give_bounds_that_skip_nothing() -> None:
    offsets = [n * 3 for n in range(4 * segments.MOST_SEGMENTS)]
    part = copied(0, offsets[-1] + 1, 100, offsets)
    assert len(part.segments) == 2 * segments.MOST_SEGMENTS
    for n, offset in enumerate(offsets):
        forth, back = translate([part], offset), translate_back([part], 100 + n)
        assert forth is not None
        assert 100 + n - 4 < forth <= 100 + n
        assert back is not None
        assert offset - 12 < back <= offset


def test_what_was_copied_before_the_position_was_moved_back_does_not_count() -> None:
    before, after, again = copied(0, 10, 0, range(10)), copied(10, 20, 11, range(10, 20)), copied(5, 8, 22, range(5, 8))
    assert unbroken([before, after]) == [before, after]
    assert unbroken([before, after, again]) == [again]
    assert unbroken([]) == []
    assert translate(unbroken([before, after, again]), 6) == 23

"""Source offsets to the target's: exact where every run is there, and never past where several stand as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.mirror import segments
from calve.sink_core.mirror.events import CopiedRange
from calve.sink_core.mirror.segments import Runs, translate
from tests.unit.mirror.build import ZERO, part

Ranges = list[tuple[list[int], int]]
"""Of each its records' source offsets, and where it ends."""


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, Ranges]:
    """Where copying began, and ranges that follow each other; some of offsets without a record."""
    begin = at = draw(st.integers(0, 50))
    found: Ranges = []
    for _ in range(draw(st.integers(1, 4))):
        end = at + draw(st.integers(1, 40))
        present = draw(st.sets(st.integers(at, end - 1)))
        found.append((sorted(present), end))
        at = end
    return begin, found


def made(begin: int, given_: Ranges, cuts: Sequence[int] = ()) -> tuple[list[CopiedRange], dict[int, int]]:
    """The events of ranges, added in batches that end at `cuts`, and where each record landed. A marker lies between
    two transactions.
    """
    events: list[CopiedRange] = []
    landed: dict[int, int] = {}
    target = 7
    for offsets, end in given_:
        runs, before = Runs(), 0
        for cut in [*sorted({c for c in cuts if c < len(offsets)}), len(offsets)]:
            runs.add(np.array(offsets[before:cut], np.int64))
            before = cut
        landed |= {offset: target + place for place, offset in enumerate(offsets)}
        whole = part(ZERO, begin, offsets, end, first=target)
        events.append(replace(whole, segments=runs.pairs(begin)))
        target += len(offsets) + bool(offsets)
        begin = end
    return events, landed


def right(landed: dict[int, int], offset: int) -> int | None:
    """Where a reader at the source's offset has to go on."""
    later = [at for source, at in landed.items() if source >= offset]
    return min(later) if later else max(landed.values()) + 1 if landed else None


@given(ranges(), st.lists(st.integers(0, 40), max_size=4))
def test_every_offset_is_translated_to_where_its_record_or_the_next_one_landed(
    drawn: tuple[int, Ranges], cuts: list[int]
) -> None:
    begin, given_ = drawn
    events, landed = made(begin, given_, cuts)
    for offset in range(begin, events[-1].end + 1):
        assert translate(events, offset) == right(landed, offset)


@given(ranges(), st.integers(1, 5))
def test_a_thinned_translation_is_never_past_and_at_most_one_merged_run_before(
    drawn: tuple[int, Ranges], most: int
) -> None:
    begin, given_ = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MOST_SEGMENTS", most)
        events, landed = made(begin, given_)
    assert all(len(event.segments) <= 2 * most for event in events)
    for offset in range(begin, events[-1].end + 1):
        found, exact = translate(events, offset), right(landed, offset)
        if found is None or exact is None:
            assert found is exact
            continue
        assert found <= exact
        assert sum(found < begin <= exact for begin in _runs(events)) <= 1


def _runs(events: Sequence[CopiedRange]) -> list[int]:
    """Where each run, merged or not, begins at the target, and behind them the end of the last one."""
    return [
        event.first + sum(map(abs, event.segments[1 : 2 * place : 2]))
        for event in events
        for place in range(len(event.segments) // 2)
    ] + [max(event.last for event in events)]


@given(ranges(), st.lists(st.integers(0, 40), max_size=4))
def test_the_borders_of_batches_do_not_matter(drawn: tuple[int, Ranges], cuts: list[int]) -> None:
    begin, given_ = drawn
    assert made(begin, given_, cuts) == made(begin, given_)


@given(ranges())
def test_runs_hold_every_record_once(drawn: tuple[int, Ranges]) -> None:
    begin, given_ = drawn
    events, _ = made(begin, given_)
    for event, (offsets, _end) in zip(events, given_, strict=True):
        pairs = zip(event.segments[::2], event.segments[1::2], strict=True)
        assert [event.start + first + i for first, count in pairs for i in range(count)] == offsets


def test_offsets_before_what_was_copied_and_beyond_it_have_no_translation() -> None:
    events = [part(ZERO, 10, [10, 11], 14, first=100)]
    assert translate(events, 9) is None
    assert translate(events, 14) == 102
    assert translate(events, 15) is None
    assert translate([], 0) is None


def test_a_range_without_a_record_leads_to_the_next_one_and_the_last_one_behind_the_last_record() -> None:
    events = [part(ZERO, 0, [], 5), part(ZERO, 5, [6], 8, first=3), part(ZERO, 8, [], 9)]
    assert [translate(events, offset) for offset in (0, 5, 6, 7, 9)] == [3, 3, 3, 4, 4]
    assert translate(events[:1], 2) is None

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from calve.sink_core.offset_sets import SHOWN_RANGES, of_range, runs, shown
from calve.sink_core.offsets import TopicPartition
from tests.codes import names

AT = TopicPartition("flights", 3)


@given(st.sets(st.integers(0, 300) | st.integers(2**40, 2**40 + 5), max_size=60))
def test_runs_are_the_maximal_ranges_of_a_set(offsets: set[int]) -> None:
    found = list(runs(BitMap64(offsets)))
    assert {o for start, end in found for o in range(start, end)} == offsets
    assert all(start < end for start, end in found)
    assert all(end < start for (_, end), (start, _) in pairwise(found))


def test_a_billion_offsets_are_one_run() -> None:
    assert list(runs(of_range(5, 1_000_000_000))) == [(5, 1_000_000_000)]


def test_ranges_are_shown_as_half_open_and_cut_off_when_there_are_many() -> None:
    assert shown(AT, of_range(100, 240)) == ("flights[3] [100, 240)",)
    many = shown(AT, BitMap64(range(0, 1000, 2)))
    assert len(many) == SHOWN_RANGES + 1
    names(many[-1], AT, 998)

"""Which slot copies which range: each partition in one, all of them, about as much for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.control.shares import Shares
from calve.sink_core.mirror.plan import by_slot, spans
from calve.sink_core.offsets import OffsetRange

some = st.lists(st.tuples(st.integers(0, 1_000), st.integers(1, 500)), max_size=12)


def shares(sizes: list[tuple[int, int]], pieces: int = 100) -> Shares:
    """Of ranges with a span and a cost each."""
    ranges = tuple(OffsetRange("t", partition, 5, 5 + span) for partition, (span, _) in enumerate(sizes))
    return Shares(ranges, tuple(cost for _, cost in sizes), pieces)


@given(some, st.integers(1, 8), st.integers(1, 8))
def test_every_range_that_is_not_empty_is_given_to_one_slot_whole(
    sizes: list[tuple[int, int]], slots: int, pieces: int
) -> None:
    planned = shares(sizes, pieces)
    given_ = by_slot(planned, slots)
    assert sorted(part for ranges in given_ for part in ranges) == [part for part in planned.ranges if part.span]
    assert len({part.at for ranges in given_ for part in ranges}) == sum(map(len, given_))
    assert len(given_) <= min(slots, pieces)
    assert all(given_)


@given(some, st.integers(1, 8))
def test_no_slot_has_more_than_the_least_loaded_and_its_smallest_range(
    sizes: list[tuple[int, int]], slots: int
) -> None:
    planned = shares(sizes)
    cost = {part.at: part.span * each for part, each in zip(planned.ranges, planned.costs, strict=True)}
    loads = [[cost[part.at] for part in ranges] for ranges in by_slot(planned, slots)]
    if loads:
        least = min(map(sum, loads))
        assert all(sum(load) - min(load) <= least for load in loads)


def test_the_largest_range_is_alone_and_small_ones_share() -> None:
    given_ = by_slot(shares([(10, 1), (100, 1), (20, 1), (15, 1)]), 2)
    assert [[part.partition for part in ranges] for ranges in given_] == [[1], [0, 2, 3]]


def test_what_is_too_little_for_a_slot_each_is_for_one() -> None:
    assert len(by_slot(shares([(10, 1), (10, 1)], pieces=1), 4)) == 1


def test_nothing_pending_is_for_nobody() -> None:
    assert by_slot(shares([(0, 1), (0, 1)]), 4) == []
    assert by_slot(shares([]), 4) == []
    assert spans([]) == 0


def test_spans_are_offsets_of_all_slots() -> None:
    assert spans(by_slot(shares([(10, 7), (5, 3)]), 2)) == 15

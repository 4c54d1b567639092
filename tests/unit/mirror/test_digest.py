"""The digest tells records apart by all that they carry, and not how they were divided into batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.mirror.digest import Digest, Headers


class Record(NamedTuple):
    """What is added of one record."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


content = st.one_of(st.none(), st.just(b""), st.binary(max_size=4))
records = st.lists(
    st.builds(
        Record,
        content,
        content,
        st.integers(-5_000, 2**52),
        st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=2), content), max_size=2)),
    ),
    max_size=6,
)


def digest(of: Sequence[Record], cuts: Sequence[int] = ()) -> int:
    """Of records that come in batches which end at `cuts`."""
    found, before = Digest(), 0
    for cut in [*sorted({min(cut, len(of)) for cut in cuts}), len(of)]:
        batch = of[before:cut]
        found.add(
            [r.key for r in batch],
            [r.value for r in batch],
            [r.timestamp_ms for r in batch],
            [r.headers for r in batch],
        )
        before = cut
    return found.value


def shown(of: Sequence[Record]) -> list[Record]:
    """Clients give None for no headers."""
    return [record._replace(headers=record.headers or None) for record in of]


@given(records, st.lists(st.integers(0, 6), max_size=3))
def test_it_is_the_same_however_records_are_divided_into_batches(of: list[Record], cuts: list[int]) -> None:
    assert digest(of, cuts) == digest(of)


@given(records, records)
def test_equal_records_have_one_and_others_have_others(one: list[Record], other: list[Record]) -> None:
    assert (digest(one) == digest(other)) == (shown(one) == shown(other))


BASE = (Record(b"k", b"v", 5, [("h", b"1"), ("i", None)]), Record(None, b"", 6, None), Record(b"", None, 7, None))


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (0, {"key": b"l"}),
        (0, {"key": None}),
        (0, {"value": b"w"}),
        (0, {"value": None}),
        (0, {"timestamp_ms": 6}),
        (0, {"headers": [("i", None), ("h", b"1")]}),
        (0, {"headers": [("h", b"1"), ("i", b"")]}),
        (0, {"headers": [("h", b"1")]}),
        (0, {"headers": None}),
        (1, {"key": b""}),
        (1, {"value": None}),
        (1, {"headers": [("h", None)]}),
        (2, {"key": None}),
        (2, {"value": b""}),
    ],
)
def test_any_change_of_a_record_is_another_digest(place: int, changed: dict[str, object]) -> None:
    other = [*BASE]
    other[place] = Record(**{**BASE[place]._asdict(), **changed})  # pyright: ignore[reportArgumentType]
    assert digest(other) != digest(BASE)


def test_what_is_moved_from_one_record_to_its_neighbour_is_another_digest() -> None:
    def two(first: bytes, second: bytes) -> list[Record]:
        return [Record(None, first, 1, None), Record(None, second, 2, None)]

    assert digest(two(b"ab", b"c")) != digest(two(b"a", b"bc"))
    headers: list[Headers] = [[("h", b"1")], None]
    swapped = [Record(None, b"v", 1, each) for each in headers]
    assert digest(swapped) != digest(swapped[::-1])


def test_order_counts_and_so_does_the_number_of_records() -> None:
    assert digest(BASE) != digest(BASE[::-1])
    empty = Record(None, None, 0, None)
    assert len({digest([empty] * n) for n in range(4)}) == 4


def test_no_records_have_the_digest_0() -> None:
    assert digest([]) == 0

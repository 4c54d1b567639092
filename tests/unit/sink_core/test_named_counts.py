from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.named_counts import NamedCounts

COUNTS = st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), max_size=5)


@given(COUNTS, st.text(max_size=3))
def test_counts_are_those_of_the_mapping(counts: dict[str, int], name: str) -> None:
    made = NamedCounts(counts)
    assert dict(made.items()) == counts == made
    assert list(made) == list(counts)
    assert (made.get(name), name in made) == (counts.get(name), name in counts)


def test_names_are_shared() -> None:
    """A dictionary of ten numbers has 352 bytes, and the numbers 32 each."""
    names = [f"name {number}" for number in range(10)]

    def made() -> NamedCounts:
        return NamedCounts({name: 10**9 + number for number, name in enumerate(names)})

    tracemalloc.start()
    try:
        made()
        before, _ = tracemalloc.get_traced_memory()
        many = [made() for _ in range(1000)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(many) < 8 * len(names) + 150

"""Bytes that are almost right."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_CUT = st.tuples(st.integers(0, 4_000), st.integers(0, 9), st.binary(max_size=9))


def _mutated(value: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, by in cuts:
        at = place % (len(value) + 1)
        value = value[:at] + by + value[at + length :]
    return value


def mutated(valid: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    """Values of `valid` with up to four short parts replaced by any bytes."""
    return st.builds(_mutated, valid, st.lists(_CUT, min_size=1, max_size=4))

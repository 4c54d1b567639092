"""Byte strings in one buffer are what a list of them is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.packed import Packed, packed, taken

VALUES = st.lists(st.binary(max_size=9), max_size=9)


@given(VALUES)
def test_it_is_the_list(values: list[bytes]) -> None:
    found = packed(values)
    assert found.block().tobytes() == b"\n".join(values)
    assert list(found) == [found[i] for i in range(len(found))] == values
    assert found.sizes().tolist() == [len(value) for value in values]
    assert list(found[1:3]) == values[1:3]
    assert found[1:3].block().tobytes() == b"\n".join(values[1:3])


@given(VALUES, st.data())
def test_some_of_it(values: list[bytes], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(values) - 1), unique=True).map(sorted)) if values else []
    chosen = taken(packed(values), places)
    assert isinstance(chosen, Packed)
    assert list(chosen) == taken(values, places) == [values[i] for i in places]
    assert chosen.block().tobytes() == b"\n".join(values[i] for i in places)


@pytest.mark.parametrize(
    ("values", "size", "expected"),
    [([b"ab1", b"ab"], 2, b"ab"), ([b"ab", b"ac"], 2, None), ([b"ab", b"a"], 2, None), ([], 2, None), ([b"a"], 0, b"")],
)
def test_what_all_begin_with(values: list[bytes], size: int, expected: bytes | None) -> None:
    assert packed(values).prefix(size) == expected


def test_none_is_not_empty() -> None:
    found = Packed(np.frombuffer(bytearray(b"a"), np.uint8), np.array([0, -1, 1]), np.array([1, -1, 1]))
    assert list(found) == [b"a", None, b""]
    assert found.nulls.tolist() == [False, True, False]
    assert found.sizes().tolist() == [1, 0, 0]

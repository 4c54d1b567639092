"""Values are those that were put there, whether they are at hand or packed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core import packed_values
from calve.sink_core.packed_values import PackedDict, PackedList

KEYS = st.sampled_from([f"b{number}" for number in range(12)])


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_values, "BLOCK", 2)
        yield


@given(st.lists(st.integers()))
def test_a_packed_list_is_a_list(values: list[int]) -> None:
    packed = PackedList[int]()
    for value in values:
        packed.append(value)
    assert list(packed) == [packed[place] for place in range(len(values))] == values
    assert (packed[1:-1], list(reversed(packed)), len(packed)) == (values[1:-1], values[::-1], len(values))
    with pytest.raises(IndexError):
        packed[len(values)]


@given(st.lists(st.one_of(st.tuples(KEYS, st.integers()), KEYS)))
def test_a_packed_dictionary_is_a_dictionary(steps: list[tuple[str, int] | str]) -> None:
    """A key alone is one that goes."""
    packed, plain = PackedDict[int](), dict[str, int]()
    for step in steps:
        if isinstance(step, tuple):
            packed[step[0]] = plain[step[0]] = step[1]
        else:
            assert packed.pop(step, None) == plain.pop(step, None)
    assert list(packed.items()) == list(plain.items())
    assert packed == plain
    assert ("b0" in packed, len(packed)) == ("b0" in plain, len(plain))


def test_a_value_taken_out_of_what_is_packed_is_a_copy() -> None:
    values = [[number] for number in range(5)]
    packed = PackedList[list[int]]()
    for value in values:
        packed.append(value)
    assert packed[0] is not values[0]
    assert packed[4] is values[4]


@pytest.mark.parametrize("look", [PackedList[int].__getitem__, lambda packed, place: list(packed)[place]])
def test_several_threads_may_look(look: Callable[[PackedList[int], int], int]) -> None:
    packed = PackedList[int]()
    for number in range(100):
        packed.append(number)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda place: look(packed, place % 100), range(1000))) == [*range(100)] * 10

"""Values by the hundred thousand: what is drawn is compared until so many were."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

MANY = 200_000
_AT_ONCE = 500

T = TypeVar("T")


def compare_many(compare: Callable[[T], int], examples: SearchStrategy[T], least: int = MANY) -> int:
    """How many values were compared; `compare` says how many an example has. Nothing is shrunk."""
    compared = 0

    @settings(max_examples=_AT_ONCE, phases=[Phase.generate], database=None, derandomize=False)
    @given(examples)
    def some(example: T) -> None:
        nonlocal compared
        if compared < least:
            compared += compare(example)

    while compared < least:
        some()
    return compared

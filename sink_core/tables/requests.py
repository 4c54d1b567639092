"""Many small requests to storage, which is mostly waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_A_TIME = 16
"""Requests under way."""

_A_TURN = 8
"""Items that a thread does before others have their turn: where storage is near, turns cost more than requests."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def answers(ask: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """What `ask` makes of each item, in their order. Raises what it does."""

    def turn(start: int) -> list[Answer]:
        return [ask(item) for item in items[start : start + _A_TURN]]

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for done in pool.map(turn, range(0, len(items), _A_TURN)):
            yield from done

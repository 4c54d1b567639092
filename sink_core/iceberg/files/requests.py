"""Many small requests to storage, which is mostly waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_A_TIME = 16
"""Requests in progress."""

_NEAR_S = 0.0003
"""What is waited for a request to storage on this machine, at most: threads then cost more than they save."""

PATIENCE_S = 0.01
"""Waited besides, in all: the machine may have other work."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def answers(ask: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """What `ask` makes of each item, in their order: one after the other while hardly any time is waited for, then
    `AT_A_TIME`. Raises what `ask` does.
    """
    waited_s = 0.0
    for number, item in enumerate(items, 1):
        began = _waited()
        answer = ask(item)
        waited_s += _waited() - began
        yield answer
        if waited_s > PATIENCE_S + number * _NEAR_S:
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                yield from pool.map(ask, items[number:])
            return


def _waited() -> float:
    """Seconds of this thread in which it did not work, from any moment on."""
    return time.perf_counter() - time.thread_time()

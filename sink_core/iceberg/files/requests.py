"""Many small requests to storage, which is mostly waited for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_A_TIME = 16
"""Requests in progress."""

AHEAD = 4 * AT_A_TIME
"""Answers, at most, that are there before anybody has asked for them."""

_NEAR_S = 0.0003
"""What is waited for a request to storage on this machine, at most: threads then cost more than they save."""

PATIENCE_S = 0.01
"""Waited besides, in all: the machine may have other work."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def answers(ask: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """What `ask` makes of each item, in their order: one after the other while hardly any time is waited for, then
    `AT_A_TIME`. Raises what `ask` does.
    """
    waited_s, left = 0.0, iter(items)
    for number, item in enumerate(left, 1):
        began = _waited()
        answer = ask(item)
        waited_s += _waited() - began
        yield answer
        if waited_s > PATIENCE_S + number * _NEAR_S:
            yield from _together(ask, left)
            return


def _together(ask: Callable[[Item], Answer], items: Iterator[Item]) -> Iterator[Answer]:
    asked = deque[Future[Answer]]()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for item in items:
            asked.append(pool.submit(ask, item))
            if len(asked) == AHEAD:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


def _waited() -> float:
    """Seconds of this thread in which it did not work, from any moment on."""
    return time.perf_counter() - time.thread_time()

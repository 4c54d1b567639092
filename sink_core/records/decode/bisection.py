"""Telling bad records from good ones where many are tried at once, and one that fails fails all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
Part = Sequence[int]
"""Numbers of records that are tried together."""


def halves(part: Part) -> tuple[Part, Part]:
    middle = len(part) // 2
    return part[:middle], part[middle:]


def bisect(
    number: int,
    attempt: Callable[[Part], T],
    unfit: type[Exception] | tuple[type[Exception], ...],
    cut: Callable[[Part], Iterable[Part]] = halves,
) -> tuple[list[tuple[Part, T]], dict[int, Exception]]:
    """What `attempt` makes of parts of so many records, in their order, and by number the error of each bad one.

    All are tried at once; a part that is `unfit` is cut, in the end to single records, whose verdict decides: what
    becomes of a record doesn't depend on its neighbours. `cut` gives smaller parts, which together are the whole one.
    """
    made, bad = list[tuple[Part, T]](), dict[int, Exception]()
    parts: list[Part] = [range(number)] if number else []
    while parts:
        part = parts.pop()
        try:
            made.append((part, attempt(part)))
        except unfit as error:
            if len(part) == 1:
                bad[part[0]] = error
            else:
                parts += reversed(list(cut(part)))
    return made, bad

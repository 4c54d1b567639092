"""Which cases of a test the gate runs. The others are of the long series (`make faults`), which runs all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def every_second(cases: Iterable[Any]) -> list[Any]:
    """The first, the third, the fifth of them and so on are in the gate."""
    return [_given(case, in_gate=place % 2 == 0) for place, case in enumerate(cases)]


def checkered(*axes: Iterable[Any]) -> list[Any]:
    """Half of all combinations are in the gate: each value, and of three axes each pair of values of two."""
    combinations = product(*(list(enumerate(axis)) for axis in axes))
    return [
        _given(tuple(value for _, value in case), in_gate=sum(place for place, _ in case) % 2 == 0)
        for case in combinations
    ]


def first_of_each_phase(points: Iterable[str]) -> list[Any]:
    """The first crash point of each phase, which their names begin with, is in the gate."""
    places = list(points)
    first = {place.partition(".")[0]: place for place in reversed(places)}
    return only(first.values(), of=places)


def only(gate: Collection[Any], of: Iterable[Any]) -> list[Any]:
    """Those of `gate` are in the gate."""
    return [_given(case, in_gate=case in gate) for case in of]


def _given(case: Any, *, in_gate: bool) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[] if in_gate else [pytest.mark.faults])

"""Which cases of a test the gate runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest

from tests.gate import checkered, first_of_each_phase


def in_gate(cases: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases if not case.marks]


@pytest.mark.parametrize("axes", [["abc", range(2)], ["abcd", range(3), range(10, 12)], ["ab", range(2), range(2, 4)]])
def test_half_of_all_cases_have_each_value_and_of_three_axes_each_pair(axes: list[Sequence[object]]) -> None:
    cases = checkered(*axes)
    assert [case.values for case in cases] == list(product(*axes))
    gate = in_gate(cases)
    assert len(gate) == len(cases) // 2
    assert [{case[place] for case in gate} for place in range(len(axes))] == [set(axis) for axis in axes]
    if len(axes) > 2:
        for one, other in combinations(range(len(axes)), 2):
            assert {(case[one], case[other]) for case in gate} == set(product(axes[one], axes[other]))


def test_each_phase_has_its_first_crash_point() -> None:
    points = ["plan.a", "plan.b", "write.a", "commit.a", "commit.b"]
    assert in_gate(first_of_each_phase(points)) == [("plan.a",), ("write.a",), ("commit.a",)]

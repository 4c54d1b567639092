from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.records.decode.bisection import Part, bisect


class Trial:
    """Fails for parts with one of `bad`, naming the first."""

    def __init__(self, bad: set[int]) -> None:
        self.bad, self.tried = bad, list[Part]()

    def __call__(self, part: Part) -> list[int]:
        self.tried.append(part)
        for i in part:
            if i in self.bad:
                raise ValueError(f"bad {i}")
        return list(part)


@given(st.integers(0, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1))))))
def test_each_record_is_good_or_bad_by_itself(records: tuple[int, set[int]]) -> None:
    number, bad = records[0], records[1] if records[0] else set[int]()
    made, errors = bisect(number, Trial(bad), ValueError)

    assert [i for _, part in made for i in part] == [i for i in range(number) if i not in bad]
    assert {i: str(error) for i, error in errors.items()} == {i: f"bad {i}" for i in bad}


def test_records_that_are_all_good_are_tried_once() -> None:
    trial = Trial(set())
    assert bisect(1_000, trial, ValueError)[0] == [(range(1_000), list(range(1_000)))]
    assert trial.tried == [range(1_000)]


def test_one_bad_record_costs_two_trials_for_each_halving() -> None:
    trial = Trial({700})
    bisect(1_024, trial, ValueError)
    assert len(trial.tried) == 1 + 2 * 10


def test_another_cut_tells_the_suspects_first() -> None:
    trial = Trial({3, 5})
    made, errors = bisect(8, trial, ValueError, lambda part: [[i for i in part if i not in (3, 5)], [3], [5]])
    assert made == [([0, 1, 2, 4, 6, 7], [0, 1, 2, 4, 6, 7])]
    assert sorted(errors) == [3, 5]
    assert len(trial.tried) == 4


def test_an_error_of_another_kind_ends_it() -> None:
    with pytest.raises(ValueError, match="bad 1"):
        bisect(2, Trial({1}), (TypeError, KeyError))

"""What one slice leaves out, another one runs."""

from __future__ import annotations

import pytest

from tests.documents import text
from tests.durations import read_budget
from tests.slices import SLICES, left_out, takes


def test_all_slices_run_every_costly_file_and_each_once() -> None:
    budget = read_budget()
    run = [path for number in range(7, 7 + SLICES) for path in budget.files.keys() - left_out(budget, number)]
    assert sorted(run) == sorted(budget.files)


def test_all_of_them_take_little_more_than_eighteen_minutes_of_three_workers() -> None:
    """`make test` takes twelve beside them, and both are to be half an hour."""
    assert sum(grant.seconds for grant in read_budget().files.values()) <= 3 * 18.5 * 60


def test_no_slice_is_much_longer_than_another() -> None:
    budget = read_budget()
    seconds = [
        sum(grant.seconds for path, grant in budget.files.items() if path not in left_out(budget, number))
        for number in range(SLICES)
    ]
    assert max(seconds) < 1.5 * min(seconds)


@pytest.mark.parametrize(("choice", "number"), [(None, 2), ("none", 1), ("only", 1)])
def test_a_run_takes_costly_files_others_or_both(choice: str | None, number: int) -> None:
    costly, other = next(iter(read_budget().files)), "tests/unit/repository/test_slices.py"
    assert sum(takes(choice, read_budget(), path) for path in (costly, other)) == number
    assert takes(choice, read_budget(), costly) == (choice != "none")


@pytest.mark.parametrize("choice", ["only", "none"])
def test_who_asks_for_a_classic_spark_is_costly(choice: str) -> None:
    path = "tests/unit/repository/test_slices.py"
    assert takes(choice, read_budget(), path, on_spark=True) == (choice == "only")
    assert sum(takes(str(number), read_budget(), path, on_spark=True) for number in range(SLICES)) == 1


def test_the_build_server_takes_the_slice_by_the_number_of_commits() -> None:
    assert 'make test-all ARGS="--costly $(git rev-list --count HEAD)"' in text(".ci/run")
    assert "a fifth of the costly files" in text("CONTRIBUTING.md")

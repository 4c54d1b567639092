"""What one slice leaves out, another one runs."""

from __future__ import annotations

import re

from tests.documents import ROOT, text
from tests.durations import read_budget
from tests.slices import SLICES, left_out


def test_all_slices_run_every_costly_file_and_each_once() -> None:
    budget = read_budget()
    run = [path for number in range(7, 7 + SLICES) for path in budget.files.keys() - left_out(budget, number)]
    assert sorted(run) == sorted(budget.files)


def test_no_slice_is_much_longer_than_another() -> None:
    budget = read_budget()
    seconds = [
        sum(grant.seconds for path, grant in budget.files.items() if path not in left_out(budget, number))
        for number in range(SLICES)
    ]
    assert max(seconds) < 1.5 * min(seconds)


def test_the_build_server_takes_the_slice_by_the_number_of_commits() -> None:
    assert re.search(r"--slice \$\(git rev-list --count HEAD\)", text(".ci/run"))
    assert "a fifth of the costly files" in (ROOT / "CONTRIBUTING.md").read_text()

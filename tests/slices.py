"""`--slice N`: of the files that have a budget of their own only every fifth, from the N-th on; all of the others.

The build server takes the slice that the number of commits says; `make test` takes all. The costly files are dealt
out by their budgets, so that no slice is much longer than another.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.durations import Budget, read_budget

SLICES = 5


def left_out(budget: Budget, number: int) -> frozenset[str]:
    """Paths of the costly files that are not in a slice; any number means one of the slices."""
    costly = sorted(budget.files, key=lambda path: (-budget.files[path].seconds, path))
    return frozenset(path for place, path in enumerate(costly) if place % SLICES != number % SLICES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", type=int, help=f"of the costly files those of one slice of {SLICES} only")


def pytest_report_header(config: pytest.Config) -> list[str]:
    number = config.getoption("--slice")
    if number is None:
        return []
    without = sorted(left_out(read_budget(), number))
    return [f"slice {number % SLICES + 1} of {SLICES}, without {len(without)} costly files: {', '.join(without)}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number = config.getoption("--slice")
    if number is None:
        return
    without = left_out(read_budget(), number)
    out = [item for item in items if _is_of(item, without)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if not _is_of(item, without)]


def _is_of(item: pytest.Item, paths: Collection[str]) -> bool:
    return item.nodeid.partition("::")[0] in paths

"""Rings of the suite: `--costly none` leaves out the files that have a grant in `tests/budget.toml` and what asks for a
classic Spark, `--costly only` takes nothing else, and `--costly N` a fifth of that, the N-th.

`make test` takes none of them, `make test-all` takes all, and the build server a fifth at each landing, by the number
of commits. They are dealt out by their seconds, so that no fifth is much longer than another.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.durations import Budget, read_budget
from tests.groups import CLASSIC_SPARK

SLICES = 5
NONE, ONLY = "none", "only"


def left_out(budget: Budget, number: int) -> frozenset[str]:
    """Paths of the costly files that are not in a slice; any number means one of the slices."""
    costly = sorted(budget.files, key=lambda path: (-budget.files[path].seconds, path))
    return frozenset(path for place, path in enumerate(costly) if place % SLICES != number % SLICES)


def takes(choice: str | None, budget: Budget, path: str, *, on_spark: bool = False) -> bool:
    """Whether a run takes a test of the file `path`, or one there that asks for a classic Spark. None takes all."""
    is_costly = on_spark or path in budget.files
    if choice is None:
        return True
    if choice in (NONE, ONLY):
        return is_costly == (choice == ONLY)
    if path in budget.files:
        return path not in left_out(budget, int(choice))
    return on_spark and crc32(path.encode()) % SLICES == int(choice) % SLICES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costly", metavar="none|only|N", help=f"costly files: none, only these, or the N-th of {SLICES}")


def pytest_report_header(config: pytest.Config) -> list[str]:
    choice, budget = config.getoption("--costly"), read_budget()
    if choice in (None, NONE, ONLY):
        return []
    names = sorted(path for path in budget.files if takes(choice, budget, path))
    return [f"slice {int(choice) % SLICES + 1} of {SLICES} of the costly files: {', '.join(names)}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice, budget = config.getoption("--costly"), read_budget()
    taken = {item: _is_taken(item, choice, budget) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not taken[item]])
    items[:] = [item for item in items if taken[item]]


def _is_taken(item: pytest.Item, choice: str | None, budget: Budget) -> bool:
    on_spark = not CLASSIC_SPARK.isdisjoint(getattr(item, "fixturenames", ()))
    return takes(choice, budget, item.nodeid.partition("::")[0], on_spark=on_spark)

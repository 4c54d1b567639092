"""Runs pytest and notes what became of each test: `python -P recording.py NOTES ARGUMENTS…`.

It imports nothing of this repository, as the code under test is another folder's. A line of JSON for each test that
passed, with its `test`, and for each error, with its `test`, `when` it came, and `errors`: of a group each one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


class Notes:
    """The plugin: what passed, and what was raised where."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._note(test=report.nodeid)

    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object], report: pytest.TestReport
    ) -> None:
        assert call.excinfo is not None
        self._note(test=node.nodeid, when=report.when, errors=[told(each) for each in single(call.excinfo.value)])

    def _note(self, **what: object) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(what) + "\n")


def single(error: BaseException) -> list[BaseException]:
    """The error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        return [each for part in error.exceptions for each in single(part)]
    return [error]


def told(error: BaseException) -> dict[str, object]:
    """The error's classes, its own first, and the line of its text that says what it is."""
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    lines = str(error).strip().splitlines() or [""]
    # Of a module that can't be collected pytest gives the traceback as text.
    line = lines[-1].removeprefix("E") if isinstance(error, pytest.Collector.CollectError) else lines[0]
    return {"kinds": kinds, "line": line.strip()}


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[Notes(Path(sys.argv[1]))]))

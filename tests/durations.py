"""Seconds that each test file took, beside its budget: what keeps the gate at twenty minutes.

A file may take `seconds` of one worker, set-up and tear-down included, or what `tests/budget.toml` grants it and why.
The table is printed at the end of every long run and fails none: a busy machine makes every file slow.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

BUDGET = Path(__file__).with_name("budget.toml")
SHOWN = 20
LONG_RUN_S = 120.0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a file may take, in seconds of one worker, and why it is more than others may."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Budget:
    """`seconds` for each file but those in `files`, by their paths."""

    seconds: float
    files: Mapping[str, Grant]

    def of(self, path: str) -> Grant:
        return self.files.get(path, Grant(self.seconds, ""))


def read_budget(path: Path = BUDGET) -> Budget:
    """The budget as it is in the file. Raises KeyError for a grant without seconds or reason."""
    found = tomllib.loads(path.read_text())
    files = {name: Grant(float(grant["seconds"]), grant["why"]) for name, grant in found["files"].items()}
    return Budget(float(found["seconds"]), files)


def seconds_by_file(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """What set-up, call and tear-down of the tests of each file took together."""
    seconds = Counter[str]()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def table(seconds: Mapping[str, float], budget: Budget) -> list[str]:
    """The costliest files and all that are over their budgets, costliest first."""
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    shown = [row for place, row in enumerate(rows) if place < SHOWN or row[1] > budget.of(row[0]).seconds]
    lines = [f"{'seconds':>8} {'budget':>7}  file"]
    for path, taken in shown:
        grant = budget.of(path)
        over = "  OVER BUDGET: make it cheaper, or say why in tests/budget.toml" if taken > grant.seconds else ""
        lines.append(f"{taken:>8.0f} {grant.seconds:>7.0f}  {path}{f' ({grant.why})' if grant.why else ''}{over}")
    lines.append(f"{sum(seconds.values()):>8.0f} {'':>7}  in {len(seconds)} files, {len(rows) - len(shown)} not shown")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Printed by whoever starts a run that is long enough."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    seconds = seconds_by_file(reports)
    if sum(seconds.values()) > LONG_RUN_S:
        terminalreporter.section("seconds of one worker by file")
        for line in table(seconds, read_budget()):
            terminalreporter.write_line(line)

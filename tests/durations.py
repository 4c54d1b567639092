"""Seconds that each test file took, beside its budget: what keeps the gate from growing.

A file may take `seconds` of one worker, set-up and tear-down included, or what `tests/budget.toml` grants it and why.
Beside them are CPU-seconds, of the worker and of the processes that it has waited for: servers are not among them. The
table is printed at the end of every long run and fails none: a busy machine makes every file slow.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

BUDGET = Path(__file__).with_name("budget.toml")
CPU, _BEGAN_S = "CPU-seconds", pytest.StashKey[float]()
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


def cpu_seconds_by_file(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """What the tests of each file took of CPU, as their last reports say."""
    seconds = dict[str, float]()
    for report in reports:
        if report.when == "teardown":
            file = report.nodeid.partition("::")[0]
            seconds[file] = seconds.get(file, 0.0) + float(str(dict(report.user_properties).get(CPU, 0)))
    return seconds


def table(seconds: Mapping[str, float], cpu_seconds: Mapping[str, float], budget: Budget) -> list[str]:
    """The costliest files and all that are over their budgets, costliest first."""
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    shown = [row for place, row in enumerate(rows) if place < SHOWN or row[1] > budget.of(row[0]).seconds]
    lines = [f"{'seconds':>8} {'budget':>7} {'CPU-s':>7}  file"]
    for path, taken in shown:
        grant = budget.of(path)
        over = "  OVER BUDGET: make it cheaper, or say why in tests/budget.toml" if taken > grant.seconds else ""
        why = f" ({grant.why})" if grant.why else ""
        lines.append(f"{taken:>8.0f} {grant.seconds:>7.0f} {cpu_seconds.get(path, 0):>7.0f}  {path}{why}{over}")
    taken, cpu = sum(seconds.values()), sum(cpu_seconds.values())
    lines.append(f"{taken:>8.0f} {'':>7} {cpu:>7.0f}  in {len(seconds)} files, {len(rows) - len(shown)} not shown")
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGAN_S] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test's last report says what it took of CPU."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((CPU, sum(os.times()[:4]) - item.stash[_BEGAN_S]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Printed by whoever starts a run that is long enough."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    seconds = seconds_by_file(reports)
    if sum(seconds.values()) > LONG_RUN_S:
        terminalreporter.section("seconds of one worker by file")
        for line in table(seconds, cpu_seconds_by_file(reports), read_budget()):
            terminalreporter.write_line(line)

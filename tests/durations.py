"""CPU-seconds of each test file and all its processes, held to a budget: what keeps the suite from growing.

A file may take `cpu_seconds`, or what `tests/budget.toml` grants it and why. One that takes more makes the run fail.
What a machine takes for a loop of known work scales the budget. Seconds of a worker, set-up and tear-down included,
stand beside them in the table at the end of a long run; they fail none: what else is busy makes all slow.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support import is_worker, shared_directory

BUDGET = Path(__file__).with_name("budget.toml")
CPU = "CPU-seconds"
SHOWN = 20
LONG_RUN_S = 120.0
KNOWN_WORK_S = 0.6
"""CPU-seconds of `known_work`: a fifth less than it takes on the machine that the budget is of, as a neighbour there
is no reason to fail.
"""

WITHOUT_SERIES = "not faults"
"""What `-m` is unless somebody chooses (`addopts` in pyproject.toml)."""

_BEGIN = pytest.StashKey[tuple[str, float]]()
_SERVERS = ("broker.json", "spark.json")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a file may take: CPU-seconds and the seconds of a worker that go with them, and why more than others."""

    cpu_seconds: float
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Budget:
    """`cpu_seconds` for each file but those in `files`, by their paths."""

    cpu_seconds: float
    files: Mapping[str, Grant]

    def cpu_seconds_of(self, path: str) -> float:
        return self.files[path].cpu_seconds if path in self.files else self.cpu_seconds


def read_budget(path: Path = BUDGET) -> Budget:
    """The budget as it is in the file. Raises KeyError for a grant without seconds or reason."""
    content = tomllib.loads(path.read_text())
    rows = content["files"].items()
    files = {name: Grant(float(row["cpu_seconds"]), float(row["seconds"]), row["why"]) for name, row in rows}
    return Budget(float(content["cpu_seconds"]), files)


def known_work() -> float:
    """CPU-seconds of a loop that is the same on each machine: the least of three."""
    return min(_loop() for _ in range(3))


def _loop() -> float:
    begin, rows = time.process_time(), dict[int, str]()
    for number in range(400_000):
        rows[number % 5_000] = json.dumps({"id": number, "text": str(number)})
    return time.process_time() - begin


def cpu_seconds_below(process: psutil.Process, servers: Collection[int] = ()) -> float:
    """CPU-seconds of a process and all that it has started, also of those that have ended and were waited for.

    `servers` are pids that are left out, with what they have started: whoever asked first has started them for all.
    """
    try:
        times = process.cpu_times()
        seconds = times.user + times.system + times.children_user + times.children_system
        children = process.children()
    except psutil.NoSuchProcess:
        return 0.0
    return seconds + sum(cpu_seconds_below(child, servers) for child in children if child.pid not in servers)


def seconds_by_file(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """What set-up, call and tear-down of the tests of each file took together."""
    seconds = Counter[str]()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def cpu_seconds_by_file(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """What each file took of CPU, as the last report of its tests says on each worker."""
    seconds = Counter[str]()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += sum(float(str(v)) for k, v in report.user_properties if k == CPU)
    return seconds


def over(cpu_seconds: Mapping[str, float], budget: Budget, slowness: float) -> list[str]:
    """A line for each file that takes more than it may on a machine that is so much slower than that of the budget."""
    return [
        f"{path} takes {taken:.0f} CPU-seconds of {most:.0f}: make it cheaper, or say why in tests/budget.toml"
        for path, taken in sorted(cpu_seconds.items(), key=lambda row: -row[1])
        if taken > (most := budget.cpu_seconds_of(path) * slowness)
    ]


def table(seconds: Mapping[str, float], cpu_seconds: Mapping[str, float], budget: Budget) -> list[str]:
    """The files that keep a worker longest, and the sums of all."""
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    lines = [f"{'seconds':>8} {'CPU-s':>7} {'budget':>7}  file"]
    for path, taken in rows[:SHOWN]:
        why = f" ({budget.files[path].why})" if path in budget.files else ""
        most = budget.cpu_seconds_of(path)
        lines.append(f"{taken:>8.0f} {cpu_seconds.get(path, 0):>7.0f} {most:>7.0f}  {path}{why}")
    taken, cpu = sum(seconds.values()), sum(cpu_seconds.values())
    lines.append(f"{taken:>8.0f} {cpu:>7.0f} {'':>7}  in {len(seconds)} files, {len(rows[SHOWN:])} not shown")
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """The first test of a file begins its account, the last one closes it."""
    stash, file = item.session.stash, item.nodeid.partition("::")[0]
    if stash.get(_BEGIN, ("", 0.0))[0] != file:
        stash[_BEGIN] = (file, _cpu_seconds(item.config))
    result = yield
    if nextitem is None:
        del stash[_BEGIN]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """What was torn down is on the file's account too."""
    yield
    file, begin_s = item.session.stash[_BEGIN]
    if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
        item.user_properties.append((CPU, _cpu_seconds(item.config) - begin_s))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Printed by whoever starts a run that is long enough."""
    reports = _reports(terminalreporter)
    seconds = seconds_by_file(reports)
    if sum(seconds.values()) > LONG_RUN_S:
        terminalreporter.section("seconds of one worker by file")
        for line in table(seconds, cpu_seconds_by_file(reports), read_budget()):
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A file over its budget fails the run. Runs that take long series have none: it is of what is always run."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if is_worker(session.config) or terminal is None or session.config.getoption("markexpr") != WITHOUT_SERIES:
        return
    if lines := over(cpu_seconds_by_file(_reports(terminal)), read_budget(), known_work() / KNOWN_WORK_S):
        terminal.section("over budget", red=True)
        for line in lines:
            terminal.write_line(line)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def _reports(terminal: pytest.TerminalReporter) -> list[pytest.TestReport]:
    return [r for reports in terminal.stats.values() for r in reports if isinstance(r, pytest.TestReport)]


def _cpu_seconds(config: pytest.Config) -> float:
    """Of this worker, but for the servers of all."""
    states = (file for name in _SERVERS for file in shared_directory(config).glob(f"*/{name}"))
    servers = {int(json.loads(file.read_text())["pid"]) for file in states}
    return cpu_seconds_below(psutil.Process(os.getpid()), servers)


if __name__ == "__main__":
    # Seconds on the machine of the budget → seconds on this one, or on a faster one as they are.
    sys.stdout.write(f"{round(float(sys.argv[1]) * max(1.0, known_work() / KNOWN_WORK_S))}\n")

"""The table of what test files took, and the budget that it holds them to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.documents import ROOT
from tests.durations import (
    CPU,
    Budget,
    Grant,
    cpu_seconds_below,
    cpu_seconds_by_file,
    over,
    read_budget,
    seconds_by_file,
    table,
)

BUDGET = Budget(60, {"tests/a.py": Grant(90, 200, "a chain of kills")})


def _report(nodeid: str, seconds: float, when: str, cpu_seconds: float | None = None) -> pytest.TestReport:
    said = [] if cpu_seconds is None else [(CPU, cpu_seconds)]
    return pytest.TestReport(nodeid, (nodeid, 0, ""), {}, "passed", None, when, duration=seconds, user_properties=said)  # pyright: ignore


def test_a_file_takes_what_setup_call_and_teardown_of_its_tests_take() -> None:
    reports = [_report("tests/a.py::one", 1, "setup"), _report("tests/a.py::two[x]", 2, "call")]
    assert seconds_by_file([*reports, _report("tests/b.py::one", 4, "teardown")]) == {"tests/a.py": 3, "tests/b.py": 4}


def test_cpu_is_that_of_all_workers() -> None:
    reports = [_report("tests/a.py::one", 1, "setup"), *(_report("tests/a.py::one", 1, "teardown", 1.5) for _ in "ab")]
    assert cpu_seconds_by_file(reports) == {"tests/a.py": 3.0}


@pytest.mark.parametrize(("slowness", "named"), [(1.0, ["tests/b.py", "tests/a.py"]), (1.5, ["tests/b.py"]), (2.0, [])])
def test_a_file_over_its_budget_is_named_unless_the_machine_is_slow(slowness: float, named: list[str]) -> None:
    lines = over({"tests/a.py": 91.0, "tests/b.py": 99.0, "tests/c.py": 1.0}, BUDGET, slowness)
    assert [line.split()[0] for line in lines] == named


def test_the_table_has_seconds_cpu_seconds_and_budget() -> None:
    lines = table({"tests/a.py": 89.0, "tests/b.py": 61.0}, {"tests/a.py": 12.3}, BUDGET)
    assert "      89      12      90  tests/a.py (a chain of kills)" in lines
    assert lines[-1].split() == ["150", "12", "in", "2", "files,", "0", "not", "shown"]


def test_files_beyond_the_twenty_costliest_are_counted_only() -> None:
    lines = table({f"tests/{number}.py": float(number) for number in range(25)}, {}, BUDGET)
    assert len(lines) == 22
    assert lines[-1].endswith("5 not shown")


def test_processes_that_have_ended_are_on_the_account_and_servers_are_not() -> None:
    def taken(*servers: int) -> float:
        return cpu_seconds_below(psutil.Process(os.getpid()), servers)

    work = "import time\nwhile time.process_time() < 0.6: pass\nprint(flush=True)\ninput()"
    before = taken()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert taken() - taken(process.pid) > 0.3
        process.communicate(b"\n")
    assert taken() - before > 0.3


def test_each_grant_is_for_a_file_that_is_there_and_has_a_reason() -> None:
    budget = read_budget()
    assert [path for path in budget.files if not (ROOT / path).is_file()] == []
    assert [path for path, grant in budget.files.items() if not grant.why] == []


def test_a_grant_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text('cpu_seconds = 60\n[files]\n"tests/a.py" = {cpu_seconds = 90, seconds = 90}\n')
    with pytest.raises(KeyError, match="why"):
        read_budget(path)

"""The table of what test files took, and the budget that it holds them to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.durations import CPU, Budget, Grant, cpu_seconds_by_file, read_budget, seconds_by_file, table

BUDGET = Budget(60, {"tests/a.py": Grant(90, "a chain of kills")})


def _report(nodeid: str, seconds: float, when: str) -> pytest.TestReport:
    return pytest.TestReport(nodeid, (nodeid, 0, ""), {}, "passed", None, when, duration=seconds)  # pyright: ignore


def test_a_file_takes_what_setup_call_and_teardown_of_its_tests_take() -> None:
    reports = [_report("tests/a.py::one", 1, "setup"), _report("tests/a.py::two[x]", 2, "call")]
    assert seconds_by_file([*reports, _report("tests/b.py::one", 4, "teardown")]) == {"tests/a.py": 3, "tests/b.py": 4}


def test_cpu_is_that_of_the_last_reports() -> None:
    reports = [_report(f"tests/a.py::{name}", 1, when) for name in ("one", "two") for when in ("setup", "teardown")]
    for report in reports[1::2]:
        report.user_properties.append((CPU, 1.5))
    assert cpu_seconds_by_file(reports) == {"tests/a.py": 3.0}


def test_a_file_over_its_budget_is_named_with_what_to_do() -> None:
    lines = table({"tests/a.py": 89.0, "tests/b.py": 61.0, "tests/c.py": 1.0}, {"tests/a.py": 12.3}, BUDGET)
    over = [line for line in lines if "OVER BUDGET: make it cheaper, or say why in tests/budget.toml" in line]
    assert [line.split()[3] for line in over] == ["tests/b.py"]
    assert "      89      90      12  tests/a.py (a chain of kills)" in lines
    assert lines[-1].split() == ["151", "12", "in", "3", "files,", "0", "not", "shown"]


def test_cheap_files_beyond_the_twenty_costliest_are_counted_only() -> None:
    lines = table({f"tests/{number}.py": float(number) for number in range(25)}, {}, BUDGET)
    assert len(lines) == 22
    assert lines[-1].endswith("5 not shown")


def test_each_grant_is_for_a_file_that_is_there_has_a_reason_and_is_over_what_any_may_take() -> None:
    budget = read_budget()
    assert [path for path in budget.files if not (ROOT / path).is_file()] == []
    assert [path for path, grant in budget.files.items() if grant.seconds <= budget.seconds or not grant.why] == []


def test_a_grant_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text('seconds = 60\n[files]\n"tests/a.py" = {seconds = 90}\n')
    with pytest.raises(KeyError, match="why"):
        read_budget(path)

"""The runner of mutants on a small project: which verdict what a test says leads to, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.documents import ROOT
from tests.mutants.__main__ import main
from tests.mutants.mutant import Mutant
from tests.mutants.verdicts import Outcome, Verdict, table

CODE = """
def most(numbers):
    found = 0
    for number in numbers:
        found = max(found, number)
    return found
"""
TESTS = """
import pytest
from code_under_test import most

@pytest.mark.parametrize("largest", [3, 5])
def test_the_largest_is_found(largest):
    assert most([largest, 2]) == largest
"""
FILE, TEST = "code_under_test.py", "test_code.py::test_the_largest_is_found"
KILLED = Mutant("the-last", FILE, "max(found, number)", "number", (TEST,), "The largest would be lost.")
SURVIVED = Mutant("not-below-one", FILE, "found = 0", "found = 1", (TEST,), "Small ones would be lost.")
EXCUSED = replace(SURVIVED, name="excused", survives="nobody asks for numbers below one")
HOLLOW = Mutant("misspelt", FILE, "return found", "return fond", (TEST,), "All would be lost.")
BROKEN = Mutant("broken", FILE, "return found", "return (found", ("test_code.py",), "All would be lost.")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module and its test, in a repository that has never seen a commit."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / FILE).write_text(CODE)
    (root / "test_code.py").write_text(TESTS)
    return root


def test_a_mutant_counts_as_killed_only_by_what_a_test_says_itself(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants = [KILLED, SURVIVED, HOLLOW, BROKEN, EXCUSED]
    assert main(["--json"], root=project, mutants=mutants) == 1
    found = {one["name"]: (one["verdict"], one["test"], one["said"]) for one in json.loads(capsys.readouterr().out)}
    assert found == {
        "the-last": ("killed", f"{TEST}[3]", "AssertionError: assert 2 == 3"),
        "not-below-one": ("survived", "", ""),
        "misspelt": ("hollow", f"{TEST}[3]", "NameError: name 'fond' is not defined"),
        "broken": ("hollow", "test_code.py", "CollectError: SyntaxError: '(' was never closed"),
        "excused": ("survived, with a reason", "", "nobody asks for numbers below one"),
    }
    assert (project / FILE).read_text() == CODE


def test_the_table_says_what_became_of_each_and_how_many_there_are_of_a_verdict() -> None:
    killed = Outcome(KILLED, Verdict.KILLED, f"{TEST}[3]", "AssertionError: assert 1 | 2 == 3")
    assert table([killed, Outcome(SURVIVED, Verdict.SURVIVED, "", "")]).splitlines()[2:] == [
        f"| the-last | {FILE} | The largest would be lost. | killed | {TEST}[3] | "
        "AssertionError: assert 1 \\| 2 == 3 |",
        f"| not-below-one | {FILE} | Small ones would be lost. | survived |  |  |",
        "",
        "2 mutants: 1 killed, 1 survived",
    ]


def test_all_is_well_if_none_of_those_asked_for_survives_without_a_reason(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["excused"], root=project, mutants=[SURVIVED, replace(EXCUSED, caught_by=())]) == 0
    assert capsys.readouterr().out.endswith("1 mutants: 1 survived, with a reason\n")


def test_tests_that_fail_without_any_mutant_prove_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "test_code.py").write_text(TESTS.replace("[3, 5]", "[3, 1]"))
    assert main([], root=project, mutants=[KILLED]) == 2
    said = capsys.readouterr()
    assert f"{TEST}[1]: AssertionError: assert 2 == 1" in said.err
    assert said.out == ""


def test_a_test_that_is_not_there_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], root=project, mutants=[replace(KILLED, caught_by=("test_code.py::test_gone",))]) == 2
    assert "/test_code.py::test_gone " in capsys.readouterr().err


def test_a_test_that_is_left_out_proves_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "test_code.py").write_text(f"import pytest\n\npytestmark = pytest.mark.skip\n{TESTS}")
    assert main([], root=project, mutants=[KILLED]) == 2
    assert capsys.readouterr().err.endswith(f"\n{TEST}: no such test has passed\n")


def test_a_mutant_that_does_not_fit_the_code_is_said_before_anything_runs(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], root=project, mutants=[KILLED, replace(HOLLOW, old="found")]) == 2
    assert main(["nothing-of-this-name"], root=project, mutants=[KILLED]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"misspelt: its `old` occurs 4 times in {FILE}, expected once",
        "there is no mutant nothing-of-this-name",
    ]


def test_ctrl_c_ends_what_runs_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    waiting = "import time, pathlib\n\ndef test_wait():\n    pathlib.Path({!r}).touch()\n    time.sleep(600)\n"
    (project / "test_code.py").write_text(waiting.format(str(tmp_path / "runs")))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    starts = (
        "import sys; from pathlib import Path; from tests.mutants.__main__ import main; "
        "from tests.mutants.mutant import Mutant; "
        f"sys.exit(main([], root=Path({str(project)!r}), mutants=[{replace(KILLED, caught_by=('test_code.py',))!r}]))"
    )
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", starts], cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    while not (tmp_path / "runs").exists():
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said.decode()) == (130, "interrupted; nothing was left behind\n")
    assert [*temporary.iterdir()] == []
    assert not any(child.is_running() for child in children)

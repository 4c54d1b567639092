"""The chain of each test, and the order of chains."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.groups import BY_WAY, ONE_BY_ONE, SECOND, TESTS, Asking, chain_of, ordered

PLAIN = Asking("integration/test_trim.py", "test_a", ("broker", "kafka_topic"))
FAILPOINT = "e2e/faults/test_failpoints.py"


@pytest.mark.parametrize("fixture", ["spark", "engine"])
@pytest.mark.parametrize("file", [PLAIN.file, *sorted(ONE_BY_ONE | BY_WAY)])
def test_who_asks_for_the_classic_spark_is_in_its_chain_wherever_it_lies(file: str, fixture: str) -> None:
    assert chain_of(Asking(file, "test_a[x-y]", ("broker", fixture))) == "spark-1"


@pytest.mark.parametrize("place", SECOND)
def test_half_of_the_classic_spark_is_a_second_chain(place: str) -> None:
    found = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    files = [file for file in found if file.startswith(place)]
    assert files
    for file in files:
        on_spark = Asking(file, "test_a", ("spark",))
        assert chain_of(on_spark) == "spark-2"
        assert chain_of(Asking(file, "test_a", ("broker",))) == file.removesuffix(".py")


def test_the_tests_of_a_file_are_one_chain() -> None:
    other = Asking(PLAIN.file, "test_b[x-y]", ())
    assert chain_of(PLAIN) == chain_of(other) == "integration/test_trim"
    assert chain_of(Asking("unit/test_trim.py", "test_a", ())) != chain_of(PLAIN)


def test_who_asks_for_dagster_s_deployment_is_in_one_chain_wherever_it_lies() -> None:
    files = ["e2e/dagster/test_ui.py", "e2e/dagster/test_daemon.py"]
    assert {chain_of(Asking(file, "test_a", ("broker", "deployment"))) for file in files} == {"deployment"}


def test_long_tests_that_share_nothing_are_chains_of_their_own() -> None:
    assert {chain_of(Asking(file, "test_a", ("broker",))) for file in ONE_BY_ONE} == {None}


def test_failpoints_of_one_way_are_one_chain_for_those_killed_and_one_for_those_asleep() -> None:
    names = ["test_killed[run-plan.after-log]", "test_killed[first run-bind.after-append]", "test_asleep[run-plan.x]"]
    chains = [chain_of(Asking(FAILPOINT, name, ())) for name in names]
    assert None not in chains
    assert len(set(chains)) == len(names)
    assert chain_of(Asking(FAILPOINT, "test_killed[run-write.after-files]", ())) == chains[0]


def test_sparks_chains_begin_then_busy_and_waiting_ones_in_turn_long_ones_first_and_unit_tests_come_last() -> None:
    on_spark = [
        Asking("unit/sink_core/test_plan.py", "test_b", ("spark",)),
        Asking(f"{SECOND[0]}.py", "test_a", ("spark",)),
    ]
    order = [
        "lint/test_lint.py",
        "integration/test_trouble_rest.py",
        "e2e/test_demo.py",
        "integration/test_trim.py",
        "e2e/faults/test_merge.py",
        "unit/sink_core/test_plan.py",
    ]
    tests = [*(Asking(file, "test_a", ()) for file in sorted(order, reverse=True)), *reversed(on_spark)]
    chains = [chain_of(test) or test.name for test in tests]
    # A file's second test changes nothing.
    places = ordered([*tests, tests[0]], [*chains, chains[0]])
    assert sorted(places, key=places.__getitem__) == ["spark-1", "spark-2", *(f.removesuffix(".py") for f in order)]


@pytest.mark.parametrize("file", sorted(ONE_BY_ONE | BY_WAY))
def test_the_files_that_are_named_are_there_and_share_no_module_fixture_unless_by_way(file: str) -> None:
    text = (TESTS / Path(file)).read_text()
    assert ('scope="module"' in text) == (file in BY_WAY)


def test_a_worker_has_whole_chains() -> None:
    """By xdist itself, which has gone without chains in silence; of files whose tests have no deadlines."""
    files = [
        "tests/unit/mirror/test_fail_back.py",
        "tests/unit/control/test_checks.py",
        "tests/unit/sink/loop/test_needed.py",
    ]
    options = ["-vv", "--noconftest", "-p", "tests.groups", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    ran = re.findall(r"^\[(gw\d)\] .* PASSED (tests/.*?)::", done.stdout, re.MULTILINE)
    workers = {file: {worker for worker, where in ran if where == file} for file in files}
    assert [len(found) for found in workers.values()] == [1, 1, 1]
    assert len(set.union(*workers.values())) == 2

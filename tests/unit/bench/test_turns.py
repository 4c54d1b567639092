"""Processes that take turns: what `bench.scale_out` measures rests on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator

import psutil
import pytest

from bench.turns import half_the_time

STARTS_ANOTHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture
def families() -> Generator[list[list[psutil.Process]]]:
    """Two processes, each with one that it started and that never waits."""
    started = [psutil.Popen([sys.executable, "-c", STARTS_ANOTHER]) for _ in range(2)]
    try:
        while not all(process.children() for process in started):
            time.sleep(0.01)
        yield [[process, *process.children()] for process in started]
    finally:
        for process in (each for parent in started for each in (*parent.children(), parent)):
            process.kill()
        for process in started:
            process.wait()


def _stopped(family: list[psutil.Process]) -> bool:
    return all(process.status() == psutil.STATUS_STOPPED for process in family)


def _share(of: Callable[[], bool], *, looks: int = 200) -> float:
    """Of looks over some turns; many at once would all see the same one."""
    found = 0
    for _ in range(looks):
        found += of()
        time.sleep(0.005)
    return found / looks


def _stops(family: list[psutil.Process], *, looks: int = 200) -> float:
    return _share(lambda: _stopped(family), looks=looks)


def test_of_two_processes_one_runs_while_the_other_is_stopped(families: list[list[psutil.Process]]) -> None:
    with half_the_time([family[0].pid for family in families]):
        assert 0.1 < _stops(families[0]) < 0.9
        assert 0.1 < _stops(families[1]) < 0.9
        assert _share(lambda: not any(map(_stopped, families))) < 0.5
    assert not any(_stopped(family) for family in families)


def test_one_process_alone_is_stopped_half_of_the_time(families: list[list[psutil.Process]]) -> None:
    one, other = families
    with half_the_time([one[0].pid]):
        assert 0.1 < _stops(one) < 0.9
        assert _stops(other, looks=20) == 0
    assert not _stopped(one)


def test_all_run_again_after_an_error(families: list[list[psutil.Process]]) -> None:
    def fail_in_a_turn() -> None:
        with half_the_time([family[0].pid for family in families]):
            while not any(_stopped(family) for family in families):
                time.sleep(0.001)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_a_turn()
    assert not any(_stopped(family) for family in families)


def test_three_processes_cannot_have_half_of_the_time_each() -> None:
    with pytest.raises(AssertionError, match="3 processes"), half_the_time([1, 2, 3]):
        pass

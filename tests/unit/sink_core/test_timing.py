from __future__ import annotations

import random
import time

import pytest

from calve.sink_core.timing import Deadline, back_off


class Clock:
    """Stands still but for sleeps; the chance is the largest there is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.slept_s = 100.0, list[float]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(random, "uniform", lambda _low, high: high)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s.append(seconds)


def test_a_deadline_has_passed_from_its_moment_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    deadline = Deadline.after(2.0)
    seen = list[tuple[float, bool]]()
    for _ in range(4):
        seen.append((deadline.left_s, deadline.passed))
        clock.now_s += 1.0

    assert seen == [(2.0, False), (1.0, False), (0.0, True), (-1.0, True)]


def test_waits_double_up_to_the_longest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    for tries in range(5):
        back_off(tries, first_s=0.5, most_s=3.0)

    assert clock.slept_s == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_wait_is_anything_up_to_its_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    random.seed(1)
    for _ in range(1_000):
        back_off(1, first_s=0.5)

    assert min(slept) < 0.01
    assert 0.99 < max(slept) <= 1.0

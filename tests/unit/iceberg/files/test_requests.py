"""Requests to storage that is near go one by one, others together; answers keep their order."""

from __future__ import annotations

import threading
import time

import pytest

from calve.sink_core.iceberg.files import requests
from calve.sink_core.iceberg.files.requests import AHEAD, AT_A_TIME, answers

ITEMS = list(range(100))


def test_where_nothing_is_waited_for_the_caller_asks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long other work keeps this thread from its core.
    monkeypatch.setattr(requests, "PATIENCE_S", 3600.0)
    asked_by: set[int] = set()

    def ask(item: int) -> int:
        asked_by.add(threading.get_ident())
        return -item

    assert list(answers(ask, ITEMS)) == [-item for item in ITEMS]
    assert asked_by == {threading.get_ident()}


def test_where_answers_are_waited_for_many_are_asked_for_together() -> None:
    under_way = threading.Barrier(AT_A_TIME, timeout=60)

    def ask(item: int) -> int:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.02)
        else:
            # Passed only by as many at a time.
            under_way.wait()
        return -item

    items = list(range(1 + 3 * AT_A_TIME))
    assert list(answers(ask, items)) == [-item for item in items]


@pytest.mark.parametrize("latency_s", [0.0, 0.02])
def test_an_error_is_the_callers(latency_s: float) -> None:
    def ask(item: int) -> int:
        time.sleep(latency_s)
        if item == 50:
            raise FileNotFoundError(str(item))
        return item

    found = answers(ask, ITEMS)
    with pytest.raises(FileNotFoundError, match="50"):
        list(found)


def test_no_more_is_asked_for_than_is_soon_taken() -> None:
    asked = 0

    def ask(item: int) -> int:
        nonlocal asked
        asked += 1
        time.sleep(0.02 if item == 0 else 0)
        return item

    found = answers(ask, range(100 * AHEAD))
    assert [next(found), next(found)] == [0, 1]
    assert asked <= 1 + AHEAD

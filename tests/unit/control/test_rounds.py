"""When a run makes its next batch, and how often it looks for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from calve.sink_core.control.rounds import LINGER_POLL_S, Bounds, rounds
from calve.sink_core.control.status import Blocker
from calve.sink_core.timing import Deadline
from tests.codes import names


@dataclass(frozen=True, slots=True)
class Moved:
    records: int
    given_up: bool = False


@dataclass(slots=True)
class Trickle:
    """Of a topic that has these records at each look, none once they are all told, and takes them all in a batch."""

    arriving: list[int]
    lag: int = 0
    paused: None = None
    until: int | None = None
    reached: int = 0
    taken: int = 0
    blockers: tuple[Blocker, ...] = ()

    def look(self) -> int:
        self.reached += self.arriving.pop(0) if self.arriving else 0
        self.lag = self.reached - self.taken
        return self.lag

    def next_batch(self) -> Moved | None:
        self.look()
        self.until = self.reached if self.until is None else self.until
        records, self.taken = self.until - self.taken, self.until
        return Moved(records) if records else None

    def go_on(self) -> None:
        self.until = None


@dataclass(slots=True)
class Report:
    ended: str = ""
    stopped_early: bool = False
    blockers: Sequence[Blocker] = ()


def run(arriving: list[int], **bounds: Any) -> tuple[list[int], str]:
    """The records of each batch, and why there are no more."""
    report, within = Report(), Bounds(max_batches=100, max_duration_s=600.0, **bounds)
    moved = rounds(Trickle(arriving), within, Deadline.after(600.0), report, lambda _progress: None)
    return [batch.records for batch in moved], report.ended


def test_a_run_that_something_is_kept_back_from_does_not_say_that_it_is_caught_up() -> None:
    blocker = Blocker("t[0]", "an open transaction", "end it", 1_700_000_000_000)
    for most, moved in ((100, [3]), (1, [3])):
        report = Report()
        mover = Trickle([3], blockers=(blocker, blocker))
        within = Bounds(max_batches=most, max_duration_s=600.0, linger_s=0.0)
        batches = rounds(mover, within, Deadline.after(600.0), report, lambda _progress: None)
        assert [batch.records for batch in batches] == moved
        assert report.blockers == (blocker, blocker)
        names(report.ended, "t[0]", "2023-11-14T22:13:20.000+00:00", "1")
        assert report.ended != "caught up"


def test_a_run_that_lingers_looks_once_for_each_batch() -> None:
    assert run([3, 2, 2, 1], linger_s=0.01) == ([3, 2, 2, 1], "caught up")


@pytest.mark.parametrize(("linger_s", "taken"), [(0.0, [3]), (0.01, [3, 5])])
def test_a_batch_waits_for_as_many_records_as_it_is_to_have(linger_s: float, taken: list[int]) -> None:
    assert run([3, 2, 3], linger_s=linger_s, or_records=5, every_s=600.0)[0] == taken


@pytest.mark.parametrize(
    ("or_records", "due_s", "look_after_s"),
    [
        (1, 60.0, LINGER_POLL_S),
        (5, 60.0, 10 * LINGER_POLL_S),
        (5, LINGER_POLL_S / 2, LINGER_POLL_S / 2),
        (5, 0.0, LINGER_POLL_S),
    ],
)
def test_a_run_that_takes_any_record_looks_often(or_records: int, due_s: float, look_after_s: float) -> None:
    bounds = Bounds(max_batches=1, max_duration_s=60.0, linger_s=60.0, or_records=or_records)
    assert bounds.look_after_s(due_s) == look_after_s

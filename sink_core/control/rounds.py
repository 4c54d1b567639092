"""The rounds of a run of any kind: batches within bounds, until what was pending is read and nothing more comes.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from calve.sink_core.config.effective import Pipeline
from calve.sink_core.control.events import Paused
from calve.sink_core.control.status import Blocker
from calve.sink_core.timing import Deadline

LINGER_POLL_S = 0.1
"""Between two looks for news when the next batch may be made at once; else ten times that."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a run begins. `phase` is one of start, plan, write, publish, commit, groups, wait,
    trim, end.

    `offsets` is the size of the batch that is written.
    """

    phase: str
    message: str
    batch_id: str = ""
    offsets: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a run ends although there is more to read. `linger_s` is how long it waits for more once it has what was
    pending at its start; a batch then follows the last one after `every_s`, or once `or_records` wait.
    """

    max_batches: int
    max_duration_s: float
    linger_s: float
    every_s: float = 0.0
    or_records: int = 1

    @classmethod
    def of(cls, pipeline: Pipeline) -> Bounds:
        run, trigger, every = pipeline.config.run, pipeline.config.trigger, pipeline.config.batch.every
        return cls(
            run.max_batches,
            run.max_duration,
            run.linger,
            every_s=trigger.every if every is None else every,
            or_records=trigger.or_records,
        )

    def look_after_s(self, due_s: float) -> float:
        """Seconds until the next look for records, where a batch is due in `due_s`: few where any record makes one."""
        return LINGER_POLL_S if self.or_records <= 1 or due_s <= 0 else min(10 * LINGER_POLL_S, due_s)


class Batch(Protocol):
    """What a round gives. One that was `given_up` counts for none: its records are planned again."""

    @property
    def given_up(self) -> bool: ...


B_co = TypeVar("B_co", bound=Batch, covariant=True)


class Mover(Protocol[B_co]):
    """What makes the batches of one kind."""

    lag: int
    """Offsets that were pending at the last look."""

    @property
    def paused(self) -> Paused | None:
        """The pause in effect, as far as the log was read."""
        ...

    @property
    def blockers(self) -> Sequence[Blocker]:
        """What keeps records back that are not in `lag`, by the last look."""
        ...

    def next_batch(self) -> B_co | None:
        """One batch; None if the pipeline is paused or has what was pending when the first batch was planned, or the
        first one after `go_on`: a topic that never stops would never be caught up with.
        """
        ...

    def look(self) -> int:
        """Look for news; how many offsets are pending."""
        ...

    def go_on(self) -> None:
        """Have the next batch read what is pending now."""
        ...


class Ending(Protocol):
    """What is to be said of how a run ended."""

    ended: str
    stopped_early: bool
    blockers: Sequence[Blocker]


def ending(report: Ending) -> dict[str, Any]:
    """It as JSON."""
    blockers = [asdict(each) for each in report.blockers]
    return {"ended": report.ended, "stopped_early": report.stopped_early, "blockers": blockers}


def rounds(
    mover: Mover[B_co], bounds: Bounds, deadline: Deadline, report: Ending, progress: OnProgress
) -> Iterator[B_co]:
    """Batches until what was pending is read and nothing comes for `linger_s`, a bound is met or there is a pause."""
    done, due = 0, Deadline.after(0.0)
    while True:
        if done >= bounds.max_batches or deadline.passed:
            report.stopped_early, report.blockers = True, mover.blockers
            reached = f"bound reached: {done} batches of run.max_batches {bounds.max_batches}, or run.max_duration"
            report.ended = f"{reached}{blocked('; blocked: ', report.blockers)}"
            return
        batch = mover.next_batch()
        if batch is not None:
            done += not batch.given_up
            due = Deadline.after(bounds.every_s)
            yield batch
            if bounds.linger_s and bounds.or_records <= 1:
                # Any record makes the next one: it need not be found first, by two looks, that the last one took all.
                mover.go_on()
        elif mover.paused:
            report.ended = str(mover.paused)
            return
        elif bounds.linger_s and _more_waits(mover, bounds, due, deadline, progress):
            mover.go_on()
        else:
            report.blockers = mover.blockers
            report.ended = _caught_up(mover.lag, report.blockers)
            return


def _caught_up(lag: int, blockers: Sequence[Blocker]) -> str:
    """Why a run ended that has what was pending at its start."""
    if blockers:
        return blocked("caught up but for what is blocked: ", blockers)
    return f"caught up with its start: {lag:,} records wait" if lag else "caught up"


def blocked(before: str, blockers: Sequence[Blocker]) -> str:
    """The first of `blockers` behind `before`; "" without any."""
    if not blockers:
        return ""
    others = f"; {len(blockers) - 1:,} more in calve status" if len(blockers) > 1 else ""
    return f"{before}{blockers[0]}{others}"


def _more_waits(mover: Mover[B_co], bounds: Bounds, due: Deadline, deadline: Deadline, progress: OnProgress) -> bool:
    """Wait until a batch may be made: records are pending and it is `due`, or so many of them do.

    Also for a pause. False once nothing has come for `linger_s`, or by the `deadline`.
    """
    until = Deadline.after(bounds.linger_s)
    progress(Progress("wait", "caught up; waiting for more records"))
    while not deadline.passed:
        waiting = mover.look()
        if mover.paused or waiting >= bounds.or_records or (waiting and due.passed):
            return True
        if not waiting and until.passed:
            return False
        time.sleep(bounds.look_after_s(due.left_s))
    return bool(mover.lag)

"""A run of a kind with slots: generations until what was pending is moved or the bounds are reached.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from calve.sink_core.control.events import Paused
from calve.sink_core.control.keep_alive import is_due
from calve.sink_core.control.rounds import Bounds, OnProgress, Progress, blocked, ending, rounds
from calve.sink_core.control.slots.leading import Led
from calve.sink_core.control.slots.plane import SlotPlane
from calve.sink_core.control.slots.slot import SlotResult
from calve.sink_core.control.slots.state import SlotState
from calve.sink_core.control.status import Blocker
from calve.sink_core.control.trim import trim_after_run
from calve.sink_core.errors import CalveError
from calve.sink_core.report import BAD, WARNING, Line, records
from calve.sink_core.tasks import Tasks, WrittenBy
from calve.sink_core.timing import Deadline
from calve.sink_core.wording import by_text, bytes_text, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBatch:
    """One generation. `failed` is the first error of its slots; what they committed stays. `lag_after` is what is
    pending behind it. `seconds` of wall time by step. `overtaken`: another driver leads by now, and has the rest.
    `written_by` is the engine of its slots, None if none ran to its end.
    """

    batch_id: str = ""
    slots: int = 0
    lag_after: int
    seconds: Mapping[str, float]
    overtaken: bool = False
    failed: CalveError | None = None
    written_by: WrittenBy | None = None

    @property
    def given_up(self) -> bool:
        """Whether the next generation plans its records anew."""
        return False

    @property
    @abstractmethod
    def records(self) -> int:
        """How many its slots have committed."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Of their keys and values."""

    @property
    @abstractmethod
    def besides(self) -> Mapping[str, int]:
        """What else became of records, by its key in documents."""

    def lines(self) -> Iterator[Line]:
        """What was moved, and what is still pending."""
        seconds = ", ".join(f"{step} {spent_s:.2f} s" for step, spent_s in self.seconds.items())
        of = f" by {counted(self.slots, 'slot', 'slots')}" if self.slots else ""
        rest = f"; {self.lag_after:,} records wait" if self.lag_after else ""
        moved = f"{records(self.records)}, {bytes_text(self.bytes)}{of}"
        yield Line(f"batch {self.batch_id or 'none'}: {moved} ({seconds}){by_text(self.written_by)}{rest}")
        for what, number in self.besides.items():
            if number:
                yield Line(f"    {number:,} {what.replace('_', ' ')}", WARNING)
        if self.failed is not None:
            yield Line("    a slot failed; what the slots had committed stays", BAD)

    def to_json(self) -> dict[str, Any]:
        return {
            "batch_id": self.batch_id,
            "records": self.records,
            "bytes": self.bytes,
            **self.besides,
            "slots": self.slots,
            "overtaken": self.overtaken,
            "lag_after": self.lag_after,
            "seconds": dict(self.seconds),
            "written_by": asdict(self.written_by) if self.written_by else None,
            "failed": self.failed.to_json() if self.failed else None,
        }


P = TypeVar("P", bound=SlotPlane[Any, Any])
S = TypeVar("S", bound=SlotState[Any])
B = TypeVar("B", bound=SlotBatch)
R = TypeVar("R", bound=SlotResult)


@dataclass(slots=True)
class SlotReport(Generic[B]):
    """A run: its batches, and why it `ended`; `stopped_early` if more may be pending."""

    batches: list[B] = field(default_factory=list[B])
    ended: str = ""
    stopped_early: bool = False
    blockers: Sequence[Blocker] = ()

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    def to_json(self) -> dict[str, Any]:
        return {**ending(self), "batches": [batch.to_json() for batch in self.batches]}

    def lines(self) -> Iterator[Line]:
        yield Line(f"{records(self.records)} moved; {self.ended}")

    def raise_failures(self) -> None:
        """Nothing: what fails here ends the run."""


@dataclass(frozen=True, slots=True)
class Assignment(Generic[R]):
    """The work of a generation's slots: what `task` does with the number of a slot, on which engine, and how it is
    called. `records` is its size.
    """

    task: Callable[[int], R]
    tasks: Tasks
    slots: int
    records: int
    message: str
    description: str


class SlotMover(Generic[P, S, B, R]):
    """Makes the batches of one pipeline with slots."""

    def __init__(self, plane: P, *, on_progress: OnProgress | None = None) -> None:
        self._plane = plane
        self._progress = on_progress or (lambda _progress: None)
        self.lag = 0
        """Offsets or records that were pending at the last look."""

    @property
    def paused(self) -> Paused | None:
        return self._plane.log.state.paused

    @property
    @abstractmethod
    def blockers(self) -> Sequence[Blocker]: ...

    @abstractmethod
    def look(self) -> int: ...

    @abstractmethod
    def go_on(self) -> None: ...

    @abstractmethod
    def next_batch(self) -> B | None:
        """One generation, also one that another has overtaken, with what it committed; None if the pipeline is paused
        or has what was pending when the first one was planned.
        """

    def bind(self) -> None:
        """Bind the pipeline. That is all for a paused one."""
        self._progress(Progress("start", "binding the pipeline"))
        self._plane.bind()

    def keep_alive(self) -> None:
        """Keep the positions of a pipeline that moves nothing."""
        if is_due(self._plane.log.state, time.time_ns() // 1_000_000):
            self._plane.keep_alive()

    @abstractmethod
    def _assignment(self, led: Led[S]) -> Assignment[R] | None:
        """The work of a generation, whose slots are then at work; None if there is none."""

    def _keep_positions(self, led: Led[S]) -> None:
        """While no slot is at work."""
        if is_due(led.state, time.time_ns() // 1_000_000):
            self._plane.keep_positions(led)

    def _concluded(self, results: Sequence[R]) -> str:  # noqa: ARG002 - nothing, if a kind has nothing to say
        """Take in what the slots say; a word on why they ended, "" if they did all."""
        return ""

    def _generation(self, led: Led[S], begun: float, seconds: dict[str, float]) -> Done[S, R]:
        """Have slots do the assignment; its end is in the log, whatever becomes of it."""
        done = Done[S, R](led.state)
        why = ""
        try:
            assignment = self._assignment(led)
            seconds["plan"] = time.monotonic() - begun
            if assignment is not None:
                done.slots, tasks, records = assignment.slots, assignment.tasks, assignment.records
                self._progress(Progress("write", assignment.message, led.generation, records))
                job = self._plane.job(led.generation, assignment.description)
                done.results = tasks.run(assignment.task, done.slots, records=records, job=job)
                done.written_by = tasks.written_by(done.slots, records=records)
                why = self._concluded(done.results)
        except CalveError as error:
            done.failed, why = error, error.message
        finally:
            seconds["write"] = time.monotonic() - begun - seconds.get("plan", 0.0)
            done.state, done.overtaken = self._plane.concluded(led.generation, why or "done", done.written_by)
        return done


@dataclass(slots=True)
class Done(Generic[S, R]):
    """A generation that has ended. `state` is the log behind it."""

    state: S
    slots: int = 0
    results: Sequence[R] = ()
    written_by: WrittenBy | None = None
    failed: CalveError | None = None
    overtaken: bool = False


class Beside(Protocol):
    """What a run does beside its batches."""

    def when_due(self) -> None:
        """After a batch."""

    def sync(self) -> object:
        """Behind the last batch."""

    @property
    def blockers(self) -> Sequence[Blocker]:
        """What it could not do."""
        ...


def run_slots(
    mover: SlotMover[P, Any, B, Any],
    plane: P,
    report: SlotReport[B],
    *,
    bounds: Bounds | None = None,
    progress: OnProgress,
    beside: Beside | None = None,
) -> Iterator[B]:
    """Run until what was pending at the start is moved or there is a pause, within `bounds` (default: the file's).

    Gives each generation once its slots have ended, before the failure of one of them is raised; what they committed
    stays. A generation that another overtook ends the run without an error: that one has the rest.
    """
    bounds = bounds or Bounds.of(plane.pipeline)
    deadline = Deadline.after(bounds.max_duration_s)
    mover.bind()
    if mover.paused:
        report.ended = str(mover.paused)
        return
    for batch in rounds(mover, bounds, deadline, report, progress):
        report.batches.append(batch)
        yield batch
        if batch.failed is not None:
            raise batch.failed
        if batch.overtaken:
            report.ended = "another run leads, and has the rest"
            break
        if beside is not None:
            beside.when_due()
    else:
        if beside is not None:
            beside.sync()
    if not report.batches:
        mover.keep_alive()
    if beside is not None:
        report.blockers = [*report.blockers, *beside.blockers]
        report.ended += blocked("; blocked: ", beside.blockers)
    trim_after_run(plane, report, progress)
    progress(Progress("end", report.ended))

"""A run of a source: generations until what was waiting is sent or the bounds are reached.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from calve.sink_core.control.rounds import Bounds, OnProgress, Progress, rounds
from calve.sink_core.control.status import Blocker
from calve.sink_core.control.trim import trim_after_run
from calve.sink_core.source.batches import Sender, SendReport
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.timing import Deadline


@dataclass(slots=True)
class SourceReport:
    """What a run did. `ended` says why it ended; `stopped_early` if there may be more to send."""

    batches: list[SendReport] = field(default_factory=list[SendReport])
    ended: str = ""
    stopped_early: bool = False
    blockers: Sequence[Blocker] = ()

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)


def run_source(
    plane: SourcePlane,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    on_batch: Callable[[SendReport], None] = lambda _batch: None,
) -> SourceReport:
    """Go through `run_steps`; `on_batch` is told of each."""
    report = SourceReport()
    for batch in run_steps(plane, report, bounds=bounds, on_progress=on_progress):
        on_batch(batch)
    return report


def run_steps(
    plane: SourcePlane, report: SourceReport, *, bounds: Bounds | None = None, on_progress: OnProgress | None = None
) -> Iterator[SendReport]:
    """Run one source until it has what was waiting at its start or is paused, within `bounds` (default: the file's).

    Gives each generation once its slots have ended, before the failure of one of them is raised; what they committed
    stays. A generation that another overtook ends the run without an error: that one has the rest.
    """
    bounds = bounds or Bounds.of(plane.pipeline)
    progress = on_progress or (lambda _progress: None)
    sender, deadline = Sender(plane, on_progress=on_progress), Deadline.after(bounds.max_duration_s)
    sender.bind()
    if sender.paused:
        report.ended = str(sender.paused)
        return
    for batch in rounds(sender, bounds, deadline, report, progress):
        report.batches.append(batch)
        yield batch
        if batch.failed is not None:
            raise batch.failed
        if batch.overtaken:
            report.ended = "another run leads, and has the rest"
            break
    if not report.batches:
        sender.keep_alive()
    trim_after_run(plane, report, progress)
    progress(Progress("end", report.ended))

"""A run of a mirror: generations until what was pending is copied or the bounds are reached.

Knows neither a terminal nor Dagster: both give it a callback for progress and get values back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from calve.sink_core.control.rounds import Bounds, OnProgress, Progress, blocked, rounds
from calve.sink_core.control.status import Blocker
from calve.sink_core.control.trim import trim_after_run
from calve.sink_core.mirror.batches import Copier, CopyReport
from calve.sink_core.mirror.groups import GroupOffset, GroupSync
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.timing import Deadline


@dataclass(slots=True)
class MirrorReport:
    """What a run did. `groups` are as the last sync left them. `ended` says why it ended; `stopped_early` if there may
    be more to copy.
    """

    batches: list[CopyReport] = field(default_factory=list[CopyReport])
    groups: list[GroupOffset] = field(default_factory=list[GroupOffset])
    ended: str = ""
    stopped_early: bool = False
    blockers: Sequence[Blocker] = ()

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)


def run_mirror(
    plane: MirrorPlane,
    *,
    bounds: Bounds | None = None,
    on_progress: OnProgress | None = None,
    on_batch: Callable[[CopyReport], None] = lambda _batch: None,
) -> MirrorReport:
    """Go through `run_steps`; `on_batch` is told of each."""
    report = MirrorReport()
    for batch in run_steps(plane, report, bounds=bounds, on_progress=on_progress):
        on_batch(batch)
    return report


def run_steps(
    plane: MirrorPlane, report: MirrorReport, *, bounds: Bounds | None = None, on_progress: OnProgress | None = None
) -> Iterator[CopyReport]:
    """Run one mirror until it has what was pending at its start or is paused, within `bounds` (default: the file's).

    Gives each generation once its slots have ended, before the failure of one of them is raised; what they committed
    stays. A generation that another overtook ends the run without an error: that one has the rest.
    """
    bounds = bounds or Bounds.of(plane.pipeline)
    progress = on_progress or (lambda _progress: None)
    copier, deadline = Copier(plane, on_progress=on_progress), Deadline.after(bounds.max_duration_s)
    groups = GroupSync(plane, progress)
    copier.bind()
    if copier.paused:
        report.ended = str(copier.paused)
        return
    for batch in rounds(copier, bounds, deadline, report, progress):
        report.batches.append(batch)
        yield batch
        if batch.failed is not None:
            raise batch.failed
        if batch.overtaken:
            report.ended = "another run leads, and has the rest"
            break
        groups.when_due()
    else:
        groups.sync()
    if not report.batches:
        copier.keep_alive()
    report.groups = groups.last.offsets
    report.blockers = [*report.blockers, *groups.last.blockers]
    report.ended += blocked("; blocked: ", groups.last.blockers)
    trim_after_run(plane, report, progress)
    progress(Progress("end", report.ended))

"""A run of a mirror: generations, and groups beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calve.sink_core.control.rounds import Bounds, OnProgress
from calve.sink_core.control.slots.run import SlotReport, run_slots
from calve.sink_core.mirror.batches import Copier, CopyReport
from calve.sink_core.mirror.groups import GroupOffset, GroupSync
from calve.sink_core.mirror.plane import MirrorPlane


@dataclass(slots=True)
class MirrorReport(SlotReport[CopyReport]):
    """What a run did, `sync` to consumer groups."""

    sync: GroupSync | None = None

    @property
    def groups(self) -> list[GroupOffset]:
        """As the last sync left them."""
        return self.sync.last.offsets if self.sync is not None else []


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
    """Run one mirror as `run_slots` does."""
    progress = on_progress or (lambda _progress: None)
    copier, sync = Copier(plane, on_progress=progress), GroupSync(plane, progress)
    report.sync = sync
    return run_slots(copier, plane, report, bounds=bounds, progress=progress, beside=sync)

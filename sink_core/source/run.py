"""A run of a source: generations of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from calve.sink_core.control.rounds import Bounds, OnProgress
from calve.sink_core.control.slots.run import SlotReport, run_slots
from calve.sink_core.source.batches import Sender, SendReport
from calve.sink_core.source.plane import SourcePlane

SourceReport: TypeAlias = SlotReport[SendReport]
"""What a run did."""


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
    """Run one source as `run_slots` does."""
    progress = on_progress or (lambda _progress: None)
    return run_slots(Sender(plane, on_progress=progress), plane, report, bounds=bounds, progress=progress)

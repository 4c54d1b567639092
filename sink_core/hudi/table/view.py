"""A Hudi table's timeline as the commit protocol sees it: a line of snapshots, one for each completed commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from calve.sink_core.hudi.files.timeline import Timeline, extra_of
from calve.sink_core.tables.history.record import SummaryKeys, from_summary, others_in
from calve.sink_core.tables.history.view import SnapshotView, TableView


def view_of(timeline: Timeline, *, table: str, uuid: str, keys: SummaryKeys, archived: bool) -> TableView:
    """`archived`: commits before those of the active timeline have left it.

    A commit that others made and that repeats what ours said last is one of ours without batches. There is no tag to be
    lost: the last commit of ours stands for it.
    """
    snapshots: dict[int, SnapshotView] = {}
    ours, last = None, None
    for number, instant in enumerate(timeline.commits, 2 if archived else 1):
        if instant.number in snapshots:
            continue
        extra = extra_of(instant)
        # Others carry on what ours said last of the table, and not the batches.
        own = from_summary(keys, {keys.batches: "", **extra})
        snapshots[instant.number] = SnapshotView(
            instant.number, last, None, own, sequence_number=number, others=others_in(keys, extra)
        )
        last = instant.number
        ours = last if own is not None else ours
    others: Mapping[str, str] = {group: at for each in snapshots.values() for group, at in each.others.items()}
    return TableView(table=table, uuid=uuid, head=last, tag=ours, snapshots=snapshots, others=others)

"""What a table with a finding lost: the ranges of batches that it had, or was to have, and that its head lacks. Pure.

What a snapshot holds is what it says of its batches. From the stored control offset of the base (see `resolving`) only
follows that nothing below it was lost since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.offset_sets import of_range
from calve.sink_core.offsets import TopicPartition, after
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.tables.history.resolving import base_of
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.state import CommitState

Offsets = dict[TopicPartition, BitMap64]
_HINT = "choose `accept`, which goes on without what was lost, or `recommit` if its files are still there"


@dataclass(frozen=True, slots=True)
class Losses:
    """Batches and range jobs by their ids. `covers_offset` is the control offset (exclusive) below which they are.

    `lost` may be missing from the table, `kept` are there. Batches with rows for the table that are not among `known`,
    since their events were trimmed, are all lost if `trimmed`, and kept otherwise.
    """

    table: str
    covers_offset: int
    lost: frozenset[str]
    kept: frozenset[str]
    trimmed: bool
    known: frozenset[str]

    def has_lost(self, batch_id: str, *, fed: bool) -> bool:
        return batch_id in self.lost or (self.trimmed and fed and batch_id not in self.known)

    def has_kept(self, batch_id: str, *, fed: bool) -> bool:
        return batch_id in self.kept or (not self.trimmed and fed and batch_id not in self.known)


def losses(view: TableView, state: CommitState) -> Losses:
    """What may be lost by what the log and the table's snapshots say. Raises TableUnusable where they can't tell."""
    base = base_of(view, state)
    if base is None:
        raise TableUnusable(
            f"{view.table}: what the head holds of this pipeline can't be known: its older snapshots were expired",
            hint=_HINT,
            code=Code.UNKNOWN_LOSS,
        )
    own = [own.stored_offset for own in view.counted(view.snapshots.values())]
    trimmed = base.stored_offset < state.log_start
    if trimmed and own:
        raise TableUnusable(
            f"{view.table}: the head has the events below control offset {base.stored_offset}, and the log begins at "
            f"{state.log_start}: which batches lie between can't be known",
            hint=_HINT,
            code=Code.UNKNOWN_LOSS,
        )
    written = [logged for logged in state.written.get(view.table, []) if logged.offset < state.limit]
    others = [after(logged.offset) for logged in written if logged.event.table_uuid != view.uuid]
    reported = state.reported.get(view.table, {}).values()
    covers = max([state.log_start, *reported, *own, *others])
    held = view.held
    below = {
        logged.event.batch_id
        for logged in written
        # One that was to replace rows may have been dropped.
        if logged.offset < base.stored_offset and logged.event.table_uuid == view.uuid and not logged.event.replaces
    }
    return Losses(
        table=view.table,
        covers_offset=covers,
        lost=frozenset(x.event.batch_id for x in written if base.stored_offset <= x.offset < covers) - held,
        kept=frozenset(held | below),
        trimmed=trimmed,
        known=frozenset(x.event.batch_id for x in written),
    )


def lost_offsets(found: Losses, rows: Iterable[LedgerRow], state: CommitState) -> Offsets:
    """The lost offsets, by the ledger's rows and what range jobs have read.

    Raises TableUnusable if the ledger lacks a lost batch, or one was read from a topic that was created again.
    """
    lost, kept, seen, former = Offsets(), Offsets(), set[str](), set[str]()
    for row in rows:
        seen.add(row.batch_id)
        fed = row.written.get(found.table, 0) > 0
        if row.former:
            former.add(row.topic)
            if fed and found.has_lost(row.batch_id, fed=fed):
                raise _created_again(found.table, row.shown)
        elif found.has_kept(row.batch_id, fed=fed):
            _add(kept, row.at, row.start, row.end)
        elif found.has_lost(row.batch_id, fed=fed):
            _add(lost, row.at, row.start, row.end)
    late = _of_jobs(found, state, former, lost, kept)
    seen |= {job.batch_id for job in state.range_jobs_of(found.table)}
    unknown = sorted(found.lost - seen)
    if unknown:
        raise TableUnusable(
            f"{found.table}: the ledger has no row of batch {unknown[0]}, which the table lost",
            hint=_HINT,
            code=Code.LEDGER_ROW,
        )
    left = {at: offsets - kept.get(at, BitMap64()) for at, offsets in lost.items()}
    for at, offsets in late.items():
        left[at] = left.get(at, BitMap64()) | offsets
    return {at: offsets for at, offsets in left.items() if offsets}


def _of_jobs(found: Losses, state: CommitState, former: set[str], lost: Offsets, kept: Offsets) -> Offsets:
    """Add what range jobs have read to `lost` and `kept`; returns lost dead letters that were moved into the table.

    The batch of such a record may be there without it; a job that was published later has read it as well.
    """
    late = Offsets()
    for job in state.range_jobs_of(found.table):
        for part in job.ranges:
            if part.topic in former:
                raise _created_again(found.table, f"{part.at} [{part.start}, {part.end})")
            if found.has_kept(job.batch_id, fed=not job.conditional):
                _add(kept, part.at, part.start, part.end)
                late[part.at] = late.get(part.at, BitMap64()) - of_range(part.start, part.end)
            elif found.has_lost(job.batch_id, fed=not job.conditional):
                _add(late if job.letters else lost, part.at, part.start, part.end)
    return late


def _created_again(table: str, lost: str) -> TableUnusable:
    return TableUnusable(
        f"{table}: {lost} was read from a topic that has been created again: its records can't be read any more",
        hint=_HINT,
        code=Code.OTHER_TOPIC,
    )


def _add(offsets: Offsets, at: TopicPartition, start: int, end: int) -> None:
    offsets.setdefault(at, BitMap64()).update(of_range(start, end))

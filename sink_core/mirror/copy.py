"""What a slot's task does: it reads ranges of the source and writes their records, byte for byte, to the target.

A piece of at most `max_bytes` or `max_duration_s` is one transaction: its records, the positions behind them, and the
event that says so. Crash points are those of `control/slots/slot.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field

from calve.sink_core.codes import Code
from calve.sink_core.control import checks
from calve.sink_core.control.slots.slot import Overtaken, Refused, Slot, SlotResult, SlotSpec
from calve.sink_core.errors import CalveError, ProtocolError
from calve.sink_core.garbage import infrequent_gc
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.messages import Messages
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.kafka.source import topic_ids
from calve.sink_core.mirror.events import RecordsCopied
from calve.sink_core.mirror.part import Part, UncarriableRecord
from calve.sink_core.mirror.plan import Ranges
from calve.sink_core.mirror.refused import Refusal, refusals
from calve.sink_core.mirror.state import MIRROR
from calve.sink_core.offsets import OffsetRange, TopicPartition, offsets_to_dense
from calve.sink_core.timing import Deadline


@dataclass(frozen=True, slots=True)
class CopySpec:
    """What the slots of one batch do; picklable, settings with their references unresolved.

    `slots` and `ranges` belong together; ranges are of source topics, `remotes` names the remote topic of each,
    and `topic_ids` its UUID.
    `reader_group` only serves the source's access control.
    """

    pipeline_id: str
    source: clients.Settings = field(repr=False)
    reader_group: str
    slots: tuple[SlotSpec, ...]
    ranges: tuple[Ranges, ...]
    remotes: Mapping[str, str]
    topic_ids: Mapping[str, str]
    max_bytes: int
    max_duration_s: float
    adjusts: bool


@dataclass(frozen=True, slots=True)
class CopyResult(SlotResult):
    """`refusals` are of topics that can't be copied as they are: one of them ends the slot where it was committed last,
    and what it had left is for the next generation.
    """

    refusals: tuple[Refusal, ...] = ()


def copy_slot(spec: CopySpec, number: int) -> CopyResult:
    """Copy the ranges of one slot, on from where its positions are.

    A task that another generation overtook ends without an error: the driver finds out from the log what that means.
    Raises FindingError for what contradicts the log, and what the reader and the producer raise.
    """
    try:
        with infrequent_gc(), Slot(spec.slots[number]) as slot:
            found = _copy(spec, number, slot)
            return CopyResult(size=slot.size, refusals=found)
    except Overtaken as overtaken:
        return CopyResult(str(overtaken))


def _copy(spec: CopySpec, number: int, slot: Slot) -> tuple[Refusal, ...]:
    planned = spec.ranges[number]
    remote = {r.at: TopicPartition(spec.remotes[r.topic], r.partition) for r in planned}
    found = slot.check(remote.values())
    left: list[OffsetRange] = []
    for part in planned:
        position = found.get(remote[part.at])
        if position is None or position.offset < part.start:
            raise ProtocolError(
                f"{remote[part.at]}: planned from {part.start}, and the position is "
                f"{position.offset if position else 'missing'}",
                hint="run again: the driver looks at the positions first",
                code=Code.FAULT,
            )
        # One that was tried again goes on behind what the first try committed; one that comes late copies nothing.
        if position.offset < part.end:
            left.append(OffsetRange(*part.at, position.offset, part.end))
    if not left:
        return ()
    parts = [Part(r, remote[r.at], slot.producer, adjusts=spec.adjusts) for r in left]
    with RangeReader(spec.source, left, group=spec.reader_group) as reader:
        piece = _Piece(spec, number, slot, parts)
        try:
            for messages in reader:
                piece.take(messages)
                if piece.is_full:
                    piece.commit()
            piece.finish()
        except Refused as refused:
            ranges = [part.open_range for part in parts if part.moved]
            return refusals(refused, slot, ranges, source=spec.source, group=spec.reader_group)
        except UncarriableRecord as error:
            # What can't be aborted now is by the next fence.
            with suppress(CalveError):
                slot.abort()
            return (Refusal(error.at, error.offset, copy(error)),)
    return ()


class _Piece:
    """The transaction that a slot has open, or will."""

    def __init__(self, spec: CopySpec, number: int, slot: Slot, parts: Sequence[Part]) -> None:
        self._spec, self._number, self._slot, self._parts = spec, number, slot, parts
        self._admin = clients.admin(spec.source)
        self._open = False
        self._deadline = Deadline.after(0.0)

    def take(self, messages: Messages) -> None:
        """Copy the next records. The transaction begins with the first: an open one holds readers back."""
        if not self._open:
            self._slot.begin()
            self._open, self._deadline = True, Deadline.after(self._spec.max_duration_s)
        with self._slot.reported("sending records"):
            for i, places in messages.by_slice():
                self._parts[i].copy(messages, places)

    @property
    def is_full(self) -> bool:
        return self._open and (self._deadline.passed or sum(part.bytes for part in self._parts) >= self._spec.max_bytes)

    def commit(self) -> None:
        """End the transaction behind the records that were copied last."""
        self._slot.flush()
        self._check_topics()
        ranges = tuple(part.copied() for part in self._parts if part.moved)
        moved = {part.at: part.end for part in ranges}
        event = RecordsCopied(
            pipeline_id=self._spec.pipeline_id,
            batch_id=self._slot.generation,
            slot=self._number,
            positions=offsets_to_dense(moved),
            ranges=ranges,
        )
        self._slot.commit(event, MIRROR.encode(event), moved)
        for part in self._parts:
            part.begin_next()
        self._open = False

    def _check_topics(self) -> None:
        """Raise FindingError if a source topic was made anew since the plan: what was read may be of either."""
        wanted = {name: self._spec.topic_ids[name] for name in {part.topic for part in self._parts if part.moved}}
        found = topic_ids(self._admin, wanted, timeout_s=clients.ADMIN_TIMEOUT_S)
        if finding := checks.topic_changed(wanted, found):
            raise finding.error()

    def finish(self) -> None:
        """End the ranges: offsets behind the last record hold none, and count as copied."""
        for part in self._parts:
            part.finish()
        if any(part.moved for part in self._parts):
            if not self._open:
                self._slot.begin()
            self.commit()

"""What a slot's task does: it reads its part of the plan and sends the records, with their source offsets.

    fence → token → has a former try of this task moved my offsets? → transaction after transaction

A transaction has records, dead letters, the source offsets behind them (with what `update_offsets` makes of these) and
the event that says so. Crash points are those of `control/slots/slot.py`; `source.after-offsets` lies between the
offsets and the event.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.slot import Overtaken, Slot, SlotResult, SlotSpec
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import BadRecord, TerminalError
from calve.sink_core.failpoints import reach
from calve.sink_core.garbage import infrequent_gc
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import Takes
from calve.sink_core.offsets import Offsets, TopicPartition, after
from calve.sink_core.source.base import BadRow, Record, Rows, Work
from calve.sink_core.source.events import Moved, RowsSent, Written
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.offsets_topic import OffsetsTopic, key_of
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.state import SOURCE
from calve.sink_core.timing import Deadline

WHOLE_S = 900.0
"""The most a broker lets a transaction take, unless it is told otherwise."""

CUT = "calve.cut"
"""The header of a dead letter that has not all of what was read: how many bytes these were."""

_FULL_S = 0.1
_FRAME = 256
"""Bytes that a batch of one record has besides, at most."""

_SHARE_OF_RAW = 2
_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class SendSpec:
    """What the slots of one batch do; picklable, settings and options with their references unresolved.

    `slots` and `work` belong together. `offset_keys` are keys of source offsets as they were found, `offset_ends` the
    ends of the offsets topic when the work was planned, `takes` what topics take, as far as it is known.
    `interval_s` None ends a transaction with each `Rows`.
    """

    pipeline_id: str
    source: SourceSpec = field(repr=False)
    slots: tuple[SlotSpec, ...]
    work: tuple[tuple[Work, ...], ...]
    connector: str
    offsets_topic: str
    offset_keys: Mapping[FlatMap, bytes]
    offset_ends: Offsets
    dead_letters: str | None
    takes: Mapping[str, Takes]
    max_bytes: int
    interval_s: float | None


def send_slot(spec: SendSpec, number: int) -> SlotResult:
    """Send what one slot has of the plan.

    A task that another generation, or a later try of itself, overtook ends without an error: the driver finds out from
    the log what that means. Raises what the source and the producer raise.
    """
    try:
        with (
            infrequent_gc(),
            Slot(spec.slots[number]) as slot,
            OpenedSource(spec.source) as source,
        ):
            slot.check(())
            if spec.slots[number].rules.former_try_is_noticed:
                _require_untouched(spec, spec.work[number])
            blockers = _send(spec, number, slot, source)
            return SlotResult(size=slot.size, blockers=blockers)
    except Overtaken as overtaken:
        return SlotResult(str(overtaken))


def _require_untouched(spec: SendSpec, work: Sequence[Work]) -> None:
    """Raise Overtaken if a former try of this task came further than the plan knows: the next plan goes on there."""
    slot = spec.slots[0]
    admin = clients.admin(slot.settings)
    topic = OffsetsTopic(slot.settings, spec.offsets_topic, spec.connector, admin=admin, group=slot.group)
    mine = {each.partition for each in work}
    if touched := sorted(mine & topic.touched_since(spec.offset_ends)):
        raise Overtaken(f"a former try of this task has moved {touched[0].json}")


def _send(spec: SendSpec, number: int, slot: Slot, source: OpenedSource) -> dict[str, Blocker]:
    """What keeps a source partition from being read on, by its JSON: all others are."""
    stored = {work.partition: work.start for work in spec.work[number] if work.start is not None}
    piece = _Piece(spec, number, slot, source, stored)
    blockers = dict[str, Blocker]()
    for work in spec.work[number]:
        if work.whole:
            # What is taken back of it is then nobody else's.
            piece.commit()
        for rows in source.read(work):
            if isinstance(rows, Blocker):
                blockers[work.partition.json] = rows
                if work.whole:
                    piece.take_back()
                break
            piece.take(work, rows)
            if piece.is_full and not work.whole:
                piece.commit()
    piece.commit()
    return blockers


class _Piece:
    """The transaction that a slot has open, or will. `stored` are the offsets of its source partitions until then."""

    def __init__(
        self, spec: SendSpec, number: int, slot: Slot, source: OpenedSource, stored: dict[FlatMap, FlatMap]
    ) -> None:
        self._spec, self._number, self._slot, self._source, self._stored = spec, number, slot, source, stored
        self._begin_next()

    def _begin_next(self) -> None:
        self._open = False
        self._pending: dict[FlatMap, FlatMap] = {}
        self._written = defaultdict[tuple[str, int], _Run](_Run)
        self._bytes = self._dropped = self._dead_letters = 0
        self._deadline = self._latest = Deadline.after(0.0)

    def take(self, work: Work, rows: Rows) -> None:
        """Send the next rows. The transaction begins with the first record: an open one holds readers back.

        Raises TerminalError for whole work that the broker has aborted by now.
        """
        self._dropped += rows.dropped
        self._pending[work.partition] = rows.offset
        if not rows.records and not rows.bad:
            return
        self._begin()
        if work.whole and self._latest.passed:
            raise TerminalError(
                f"{work.partition.json} took longer than the {WHOLE_S / 60:.0f} minutes that a transaction may take",
                hint="read what is there in parts, by a source of tables (by: timestamp or incrementing)",
                code=Code.WHOLE_TOO_LONG,
            )
        with self._slot.reported("sending records"):
            for record in rows.records:
                if (refusal := self._refusal(record)) is None:
                    self._produce(record)
                else:
                    code, why = refusal
                    self._bury(_not_taken(work, record, why), code)
        for bad in rows.bad:
            self._bury(bad, Code.BAD_ROW)

    def take_back(self) -> None:
        """Abort the open transaction: nothing of it counts."""
        if self._open:
            # What is acknowledged later would be counted in the next.
            self._slot.flush()
            self._slot.abort()
        self._begin_next()

    @property
    def is_full(self) -> bool:
        if self._bytes >= self._spec.max_bytes:
            return True
        # Offsets alone wait for records, or for the end.
        return self._open and (self._spec.interval_s is None or self._deadline.passed)

    def commit(self) -> None:
        """End the transaction with its source offsets; nothing if there is nothing to store."""
        moved = self._moved()
        if not moved and not self._open:
            return
        self._begin()
        with self._slot.reported("storing source offsets"):
            for partition, offset in moved.items():
                key = self._spec.offset_keys.get(partition) or key_of(self._spec.connector, partition)
                value = None if offset is None else offset.json.encode()
                self._slot.producer.produce(self._spec.offsets_topic, value, key)
            reach("source.after-offsets")
        self._slot.flush()
        event = RowsSent(
            pipeline_id=self._spec.pipeline_id,
            batch_id=self._slot.generation,
            slot=self._number,
            positions={},
            moved=tuple(
                Moved(
                    partition=partition.json,
                    before=known.json if (known := self._stored.get(partition)) is not None else "",
                    after="" if offset is None else offset.json,
                )
                for partition, offset in sorted(moved.items())
            ),
            written=tuple(run.written(TopicPartition(*at)) for at, run in sorted(self._written.items())),
            dropped=self._dropped,
            dead_letters=self._dead_letters,
        )
        self._slot.commit(event, SOURCE.encode(event), {})
        for partition, offset in moved.items():
            if offset is None:
                self._stored.pop(partition, None)
            else:
                self._stored[partition] = offset
        self._begin_next()

    def _moved(self) -> dict[FlatMap, FlatMap | None]:
        """What is to be stored: what differs from what is (an offset that stays is not written again)."""
        wanted = self._source.update_offsets(self._pending)
        return {partition: offset for partition, offset in wanted.items() if offset != self._stored.get(partition)}

    def _begin(self) -> None:
        if not self._open:
            self._slot.begin()
            self._open, self._latest = True, Deadline.after(WHOLE_S)
            if self._spec.interval_s is not None:
                self._deadline = Deadline.after(self._spec.interval_s)

    def _produce(self, record: Record) -> None:
        topic, key, value, headers, timestamp, partition, _ = record
        produce = self._slot.producer.produce
        while True:
            try:
                produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    self._note,
                    None,
                    timestamp or 0,
                    list(headers) if headers else None,
                )
                break
            except BufferError:
                self._slot.producer.poll(_FULL_S)
        self._bytes += len(key or b"") + len(value or b"")

    def _refusal(self, record: Record) -> tuple[Code, str] | None:
        """Why its topic would not take a record; None if it would."""
        takes = self._spec.takes.get(record.topic)
        if takes is None:
            return None
        if takes.compacted and record.key is None:
            why = f"a record without a key, and topic {record.topic} is compacted (cleanup.policy)"
            return Code.NO_KEY_FOR_TOPIC, why
        if size := self._more_than_fits(record):
            why = f"{size:,} bytes are more than max.message.bytes ({takes.max_bytes:,}) of topic {record.topic}"
            return Code.TOO_LARGE_FOR_TOPIC, why
        return None

    def _more_than_fits(self, record: Record) -> int:
        """The bytes of a record that are more than its topic takes, as the producer compresses them; 0 if it fits."""
        takes = self._spec.takes.get(record.topic)
        most = takes.max_bytes if takes else sys.maxsize
        rest = len(record.key or b"") + sum(len(name) + len(value or b"") for name, value in record.headers) + _FRAME
        if (size := rest + len(record.value or b"")) <= most:
            return 0
        compression = self._spec.slots[0].producer.get("compression.type", "none")
        if compression != "none" and record.value is not None:
            size = rest + len(pa.compress(record.value, codec=compression, asbytes=True))
        return size if size > most else 0

    def _bury(self, bad: BadRow, code: Code) -> None:
        topic = self._spec.dead_letters
        if topic is None:
            raise BadRecord(f"{bad.where.json}: {bad.error}", hint=code.explanation.remedy.replace("`", ""), code=code)
        where = bad.where.json.encode()
        headers = (
            ("calve.error", bad.error.encode()),
            ("calve.pipeline", self._spec.connector.encode()),
            ("calve.where", where),
        )
        # With a key, which a topic that somebody has compacted asks for.
        letter = Record(topic, where, bad.raw, headers)
        if self._more_than_fits(letter):
            kept = max(0, self._spec.takes[topic].max_bytes // _SHARE_OF_RAW)
            letter = letter._replace(value=bad.raw[:kept], headers=(*headers, (CUT, f"{len(bad.raw)}".encode())))
        with self._slot.reported("sending dead letters"):
            self._produce(letter)
        self._dead_letters += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        """A record was acknowledged. One that was refused makes the commit fail."""
        if error is None:
            run, offset = self._written[message.topic() or "", message.partition() or 0], message.offset() or 0
            if offset < run.first:
                run.first = offset
            if offset >= run.end:
                run.end = after(offset)
            run.records += 1
            run.bytes += len(message)


def _not_taken(work: Work, record: Record, why: str) -> BadRow:
    """A record as the bad row that its topic makes of it."""
    key = {} if record.key is None else {"key": record.key[:_SHOWN].decode(errors="backslashreplace")}
    where = FlatMap({**work.partition, "topic": record.topic, **key, **(record.where or {})})
    return BadRow(record.value or record.key or b"", why, where)


@dataclass(slots=True)
class _Run:
    """What a partition of a topic got in one transaction."""

    first: int = sys.maxsize
    end: int = 0
    records: int = 0
    bytes: int = 0

    def written(self, at: TopicPartition) -> Written:
        return Written(**at._asdict(), first=self.first, end=self.end, records=self.records, bytes=self.bytes)

"""Records of offset ranges, in batches of bounded bytes, each range ended exactly at its end.

A range need not end in a record: control records, aborted transactions and compaction leave offsets without one. So a
range is done once a record at its last offset or beyond was seen, or the end of the partition at or past the range's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError

from calve.sink_core import compiled
from calve.sink_core.codes import Code
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import CalveError, ProtocolError, TerminalError, Unreachable
from calve.sink_core.findings import POSITIONS_BEYOND_END, RECORDS_LOST
from calve.sink_core.kafka import clients, librdkafka
from calve.sink_core.kafka.compat import AUTHENTICATION, AUTO_OFFSET_RESET, PARTITION_EOF, SSL
from calve.sink_core.kafka.delivery import Delivered, Delivery, Event
from calve.sink_core.kafka.failures import classify, reported
from calve.sink_core.kafka.messages import Messages, SliceIndex, count, only
from calve.sink_core.kafka.objects import Objects
from calve.sink_core.offsets import OffsetRange, after
from calve.sink_core.timing import Deadline

BATCH_RECORDS = 20_000
BATCH_BYTES = 8 * 1024 * 1024
STALL_SECONDS = 60.0

_POLL_SECONDS = 0.5
_WATERMARK_SECONDS = 10.0
_FIRST_GUESS_BYTES = 8 * 1024
_SHOWN = 5
_SETTINGS: Mapping[str, object] = {
    # What librdkafka reads ahead is what a task holds beside the batch at hand.
    "queued.max.messages.kbytes": 2 * BATCH_BYTES // 1024,
    "fetch.message.max.bytes": BATCH_BYTES // 2,
    "fetch.max.bytes": 2 * BATCH_BYTES,
    # The plan has just seen the topic: if a broker does not know it, it is gone rather than new.
    "topic.metadata.propagation.max.ms": 5_000,
}
_REFUSED = {AUTHENTICATION, SSL}
_OUT_OF_RANGE = {AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


def deliveries(records: int) -> Callable[..., Delivery]:
    """What makes the client for a read of so many records."""
    if compiled.usable(compiled.RECORDS, records) and librdkafka.lacks() is None:
        from calve.sink_core.kafka.columns import Columns

        return Columns
    return Objects


class _Trouble:
    """What the client as a whole complained of last.

    Apart from the reader: a client that holds it, and is held by it, stays until Python looks for cycles, and a process
    has room for a thousand clients.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether waiting would not help: librdkafka itself retries for ever."""
        error = self.error
        return error is not None and (error.code() in _REFUSED or isinstance(classify(error, "reading"), TerminalError))

    def note(self, error: KafkaError) -> None:
        # What ends the reading is followed by the loss of the connection, which says less.
        if not self.is_hopeless:
            self.error = error


class RangeReader:
    """Reads `slices` (a partition at most once, none empty) as `read_committed` shows them, once; unless `committed`,
    records of open and aborted transactions too.

    `settings` are librdkafka's with references unresolved and win over the reader's own bounds on memory. `group` only
    serves the brokers' access control; nothing is committed. Iterating raises Unreachable if nothing arrives for
    `stall_seconds`, FindingError if a range's offsets are not in the log, ProtocolError if offsets don't increase.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        slices: Sequence[OffsetRange],
        *,
        group: str,
        stall_seconds: float = STALL_SECONDS,
        committed: bool = True,
    ) -> None:
        self.slices = tuple(slices)
        self.counts = [PartitionCounts(s.topic, s.partition, s.start, s.end) for s in slices]
        """What the broker delivered so far; `gaps` once a slice is done."""
        self._index = SliceIndex(slices)
        self._next = np.array([s.start for s in slices], np.int64)
        self._ends = np.array([s.end for s in slices], np.int64)
        self._stall_seconds = stall_seconds
        self._record_bytes = _FIRST_GUESS_BYTES
        self._trouble = _Trouble()
        bounds = {key: value for key, value in _SETTINGS.items() if key not in settings}
        bounds |= {} if committed else clients.UNCOMMITTED
        kind = deliveries(sum(s.span for s in slices))
        self._delivery = kind(settings, self._index, group=group, on_error=self._trouble.note, **bounds)

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._delivery.close()

    def __iter__(self) -> Iterator[Messages]:
        with reported(f"assigning {self._open_shown()}"):
            self._delivery.assign(self.slices)
        deadline = Deadline.after(self._stall_seconds)
        while (self._next < self._ends).any():
            received = self._receive()
            if received:
                yield from self._take(received)
                deadline = Deadline.after(self._stall_seconds)
            elif deadline.passed or self._trouble.is_hopeless:
                raise self._stalled()

    def _receive(self) -> Delivered | None:
        """What librdkafka has queued; None if nothing came for a moment."""
        most = max(1, min(BATCH_RECORDS, BATCH_BYTES // self._record_bytes))
        with reported(f"reading {self._open_shown()}"):
            return self._delivery.receive(most, _POLL_SECONDS)

    def _take(self, received: Delivered) -> Iterator[Messages]:
        if (delivered := received.messages) is not None:
            self._trouble.error = None
            messages = only(delivered, delivered.offsets < self._ends[delivered.slices])
            self._advance(messages)
            self._finish(
                int(i) for i in np.unique(delivered.slices[delivered.offsets >= self._ends[delivered.slices] - 1])
            )
            if len(messages):
                yield messages
        self._heed(received.events)

    def _advance(self, messages: Messages) -> None:
        for i, places in messages.by_slice():
            offsets = messages.offsets[places]
            if offsets[0] < self._next[i] or (np.diff(offsets) <= 0).any():
                raise ProtocolError(
                    f"{self.slices[i]}: offsets must increase, {offsets[:20]} came where {self._next[i]} was next",
                    hint="report it, with the versions of the brokers and of librdkafka",
                    code=Code.FAULT,
                )
            self._next[i] = after(int(offsets[-1]))
        count(messages, self.counts)
        self._record_bytes = max(1, int(messages.sizes.mean())) if len(messages) else self._record_bytes

    def _finish(self, done: Iterable[int]) -> None:
        for i in done:
            self._next[i] = self._ends[i]
            self.counts[i].gaps = self.slices[i].span - self.counts[i].records
            self._delivery.pause(self.slices[i])

    def _heed(self, events: Iterable[Event]) -> None:
        """Ends of partitions, and errors."""
        for event in events:
            error, i = event.error, event.slice
            if i is None:
                # Of the client as a whole.
                self._trouble.note(error)
                continue
            if self._next[i] >= self._ends[i]:
                continue
            if error.code() in _OUT_OF_RANGE:
                raise self._out_of_range(self.slices[i], int(self._next[i]))
            if error.code() != PARTITION_EOF:
                raise classify(error, f"reading {self.slices[i]} at offset {self._next[i]}")
            if event.offset >= self._ends[i]:
                self._finish([i])

    def _out_of_range(self, part: OffsetRange, position: int) -> CalveError:
        with reported(f"reading the log start of {part.at}"):
            log_start, end = self._delivery.watermarks(part, _WATERMARK_SECONDS)
        stored, found = f"{part.at} at {position}", f"log start {log_start}, end {end}"
        if position < log_start:
            return RECORDS_LOST.of(part.topic, stored=stored, found=found).error()
        return POSITIONS_BEYOND_END.of(part.topic, stored=stored, found=found).error()

    def _stalled(self) -> CalveError:
        trouble = self._trouble.error
        doing = f"reading {self._open_shown()}"
        if trouble is not None and self._trouble.is_hopeless:
            return classify(trouble, doing)
        said = f"; last trouble: {trouble.name()}: {trouble.str()}" if trouble else ""
        return Unreachable(
            f"{doing}: nothing came for {self._stall_seconds:g} s{said}",
            hint="see whether the partitions have leaders, and whether a transaction hangs (kafka-transactions.sh)",
            code=Code.SILENT_PARTITION,
        )

    def _open_shown(self) -> str:
        still = [i for i in range(len(self.slices)) if self._next[i] < self._ends[i]]
        shown = ", ".join(f"{self.slices[i]} at offset {self._next[i]}" for i in still[:_SHOWN])
        return shown if len(still) <= _SHOWN else f"{shown} and {len(still) - _SHOWN} more"

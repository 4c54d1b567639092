"""One partition while a slot copies it: what is produced, and what is said of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat, starmap
from operator import length_hint

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message, Producer

from calve.sink_core.codes import Code
from calve.sink_core.errors import BadRecord
from calve.sink_core.failpoints import reach
from calve.sink_core.findings import FOREIGN_RECORDS
from calve.sink_core.kafka.messages import Messages
from calve.sink_core.mirror.carried import Carried, carried
from calve.sink_core.mirror.digest import Digest
from calve.sink_core.mirror.events import CopiedRange
from calve.sink_core.mirror.segments import Runs
from calve.sink_core.offsets import OffsetRange, TopicPartition, after

OnRefused = Callable[[int, KafkaError], None]


class UncarriableRecord(BadRecord):
    """A record of the source's partition `at` that can't be sent as it is."""

    def __init__(self, at: TopicPartition, offset: int, what: str) -> None:
        super().__init__(
            f"{at} at offset {offset} has {what}",
            hint="set on_uncarriable: adjust to copy it without, or with timestamp 1; it is then counted",
            code=Code.UNCARRIABLE,
        )
        self.at, self.offset = at, offset


_Callback = Callable[[KafkaError | None, Message], None]
_FULL_S = 0.1


class Part:
    """The records of `part`, produced to the partition `at` of its remote topic.

    Between two `begin_next` it gathers what one transaction copies. `bytes` are those of keys and values so far.
    `on_refused` is told the source's offset of each record that the target refuses, and why.
    """

    def __init__(
        self,
        part: OffsetRange,
        at: TopicPartition,
        producer: Producer,
        *,
        adjusts: bool,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._source, self._at, self._producer, self._adjusts = part, at, producer, adjusts
        self._on_refused = on_refused
        self._next = part.start
        self.begin_next()

    def begin_next(self) -> None:
        """Another transaction goes on where this one ends."""
        self._start = self._next
        self._runs, self._digest = Runs(), Digest()
        self._first = self._last = -1
        self._refused = False
        self._records = self.bytes = self._adjusted = 0
        self._max_ms = -1

    @property
    def topic(self) -> str:
        """The source's."""
        return self._source.topic

    @property
    def moved(self) -> bool:
        return self._next > self._start

    @property
    def open_range(self) -> tuple[OffsetRange, TopicPartition]:
        """What the transaction has copied so far, and where to."""
        return OffsetRange(*self._source.at, self._start, self._next), self._at

    def finish(self) -> None:
        """The range ends: whatever follows its last record holds none."""
        self._next = self._source.end

    def copy(self, messages: Messages, places: npt.NDArray[np.int64]) -> None:
        """Produce the records at `places`, in their order. Raises UncarriableRecord for one that can't be sent so."""
        mine = messages.at(places)
        sent = carried(mine, self._adjust)
        self._next = after(int(mine.offsets[-1]))
        self._produce(sent, self._callbacks(mine.offsets))
        reach("transaction.mid-produce")
        self._runs.add(mine.offsets)
        self._digest.add(sent.keys, sent.values, sent.timestamps_ms, sent.headers)
        self._records += len(mine)
        self.bytes += int(mine.sizes.sum())
        self._max_ms = max(self._max_ms, max(sent.timestamps_ms))

    def copied(self) -> CopiedRange:
        """What the transaction copies, once every record was acknowledged.

        Raises FindingError if somebody else has written between them. What it says where a record was refused does not
        count, as that transaction can't be committed.
        """
        if self._records and not self._refused and self._last - self._first + 1 > self._records:
            raise FOREIGN_RECORDS.of(
                self._at.topic,
                stored=f"{self._at}: {self._records:,} records of this mirror in a row",
                found=f"offsets {self._first} to {self._last}",
            ).error()
        return CopiedRange(
            topic=self._at.topic,
            partition=self._at.partition,
            start=self._start,
            end=self._next,
            first=self._first,
            records=self._records,
            bytes=self.bytes,
            digest=self._digest.value,
            max_timestamp_ms=self._max_ms,
            adjusted=self._adjusted,
            segments=self._runs.pairs(self._start),
        )

    def _produce(self, sent: Carried, callbacks: Sequence[_Callback | None]) -> None:
        left = iter(sent.values)
        columns = (repeat(self._at.topic), left, sent.keys, repeat(self._at.partition), callbacks, repeat(None))
        untried: Iterator[tuple[object, ...]] = zip(*columns, sent.timestamps_ms, sent.headers, strict=False)
        rows = untried
        while True:
            try:
                # Not a loop of Python's own, which takes a third of the time of what it calls.
                deque(starmap(self._producer.produce, rows), maxlen=0)
            except BufferError:
                self._producer.poll(_FULL_S)
                i = len(sent.values) - length_hint(left) - 1
                to = (self._at.topic, sent.values[i], sent.keys[i], self._at.partition, callbacks[i], None)
                rows = chain([(*to, sent.timestamps_ms[i], sent.headers[i])], untried)
            else:
                return

    def _callbacks(self, offsets: npt.NDArray[np.int64]) -> Sequence[_Callback | None]:
        """The first record and the last tell where they landed; a record that is not taken fails the transaction."""
        if (tell := self._on_refused) is not None:
            return [partial(_refused, tell, offset) for offset in offsets.tolist()]
        callbacks: list[_Callback | None] = [None] * len(offsets)
        if self._first < 0 and not self._records:
            callbacks[0] = self._landed_first
        callbacks[-1] = self._landed if len(offsets) > 1 or self._records else self._landed_only
        return callbacks

    def _landed_first(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._first = int(message.offset() or 0)
        self._refused |= error is not None

    def _landed(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last = max(self._last, int(message.offset() or 0))
        self._refused |= error is not None

    def _landed_only(self, error: KafkaError | None, message: Message) -> None:
        self._landed_first(error, message)
        self._landed(error, message)

    def _adjust(self, offset: int, what: str, cause: Exception | None) -> None:
        if not self._adjusts:
            raise UncarriableRecord(self._source.at, offset, what) from cause
        self._adjusted += 1


def _refused(tell: OnRefused, offset: int, error: KafkaError | None, _: Message) -> None:
    if error is not None:
        tell(offset, error)

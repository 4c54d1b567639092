"""Records by librdkafka itself, taken apart by kernels: columns, and no object for any of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
from confluent_kafka import KafkaError

from calve.sink_core.kafka import clients, gather, librdkafka
from calve.sink_core.kafka.delivery import Delivered, Event
from calve.sink_core.kafka.messages import Headers, Messages, SliceIndex, UnreadableHeaders
from calve.sink_core.kafka.objects import Objects
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.packed import Int64s, Packed

_LEVELS = (*[logging.CRITICAL] * 3, logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
"""By the syslog's number."""

_ROWS, _HEADER_ROWS = gather.HEADERS + 1, gather.HEADER_ENDS + 1


class Columns:
    """A `Delivery`, as `Objects` is."""

    def __init__(
        self,
        settings: clients.Settings,
        index: SliceIndex,
        *,
        group: str,
        on_error: Callable[[KafkaError], None],
        **overrides: object,
    ) -> None:
        self._settings, self._group, self._index = settings, group, index
        self._by_partition = dict[int, Int64s]()
        self._functions = np.array(librdkafka.addresses(), np.int64)
        self._scratch, self._totals = np.zeros(4, np.int64), np.zeros(4, np.int64)
        # Those that are this reader's to destroy; an interrupt may come between any two calls, but within none.
        self._messages = np.zeros(0, np.int64)
        known = clients.reader_settings(settings, group=group, **overrides)
        self._consumer = librdkafka.Consumer(known, on_error=on_error, on_log=_log)

    def assign(self, slices: Sequence[OffsetRange]) -> None:
        """As `Delivery` says, and so do the others."""
        self._consumer.assign([(s.topic, s.partition, s.start) for s in slices])

    def receive(self, most: int, timeout_s: float) -> Delivered | None:
        if len(self._messages) < most:
            self._messages = np.zeros(most, np.int64)
        at, word = self._messages.ctypes.data, self._messages.itemsize
        # Waiting for `most` would gather messages of any size in memory; what is queued is bounded.
        found = self._consumer.consume(at, 1, timeout_s)
        if found and most > 1:
            found += self._consumer.consume(at + found * word, most - 1, 0)
        return self._delivered(found) if found else None

    def _delivered(self, found: int) -> Delivered:
        gather.measure(self._messages, found, self._functions, self._scratch, self._totals)
        n, value_bytes, rest_bytes, header_count = self._totals.tolist()
        values, rest = np.empty(value_bytes + n, np.uint8), np.empty(rest_bytes, np.uint8)
        records, headers = np.empty((_ROWS, n), np.int64), np.empty((_HEADER_ROWS, header_count), np.int64)
        number = gather.gather(self._messages, found, self._functions, self._scratch, values, rest, records, headers)
        events = self._events(found) if number else []
        return Delivered(self._columns(values, rest, records, headers) if n else None, events)

    def _columns(self, values: np.ndarray, rest: np.ndarray, records: np.ndarray, headers: np.ndarray) -> Messages:
        """The columns of what `gather` filled."""
        starts, ends = records[gather.VALUE_STARTS], records[gather.VALUE_ENDS]
        keys = Packed(rest, records[gather.KEY_STARTS], records[gather.KEY_ENDS])
        return Messages(
            slices=self._slices(records[gather.TOPICS], records[gather.PARTITIONS]),
            offsets=records[gather.OFFSETS],
            stated_ms=records[gather.TIMES],
            timestamp_types=records[gather.TIME_TYPES],
            sizes=ends - starts + keys.sizes(),
            keys=keys,
            values=Packed(values, starts, ends, dense=bool((starts >= 0).all())),
            headers=PackedHeaders(rest, records[gather.HEADERS], headers),
        )

    def _slices(self, topics: Int64s, partitions: Int64s) -> Int64s:
        if len(self._index) == 1:
            return np.zeros(len(topics), np.int64)
        first = int(topics[0])
        if (topics == first).all():
            return self._of_topic(first)[partitions]
        found = np.empty(len(topics), np.int64)
        for address in np.unique(topics).tolist():
            mine = topics == address
            found[mine] = self._of_topic(address)[partitions[mine]]
        return found

    def _of_topic(self, address: int) -> Int64s:
        """The slices by partition of the topic at an address, which librdkafka keeps as long as it is assigned."""
        if address not in self._by_partition:
            self._by_partition[address] = self._index.of_topic(self._consumer.topic(address))
        return self._by_partition[address]

    def _events(self, found: int) -> list[Event]:
        """What the messages say that are no records, which are destroyed."""
        events = [self._event(address) for address in self._messages[:found].tolist() if address]
        gather.destroy(self._messages, self._functions)
        return events

    def _event(self, address: int) -> Event:
        found = self._consumer.event(address)
        of = None if found.topic is None else self._index.of(found.topic, found.partition)
        return Event(found.error, of, found.offset)

    def pause(self, part: OffsetRange) -> None:
        self._consumer.pause(part.topic, part.partition)

    def watermarks(self, part: OffsetRange, timeout_s: float) -> tuple[int, int]:
        asking = Objects(self._settings, self._index, group=self._group, on_error=lambda _: None)
        try:
            return asking.watermarks(part, timeout_s)
        finally:
            asking.close()

    def close(self) -> None:
        # Those of a call that was interrupted: librdkafka would wait for them for ever.
        gather.destroy(self._messages, self._functions)
        self._consumer.close()


class PackedHeaders:
    """As `HeadersOf`. The i-th record has the headers up to `ends[i]`, behind those of the record before it; `spans`
    are of their names and values in `data`, as `gather` fills them.
    """

    def __init__(self, data: np.ndarray, ends: Int64s, spans: np.ndarray, starts: Int64s | None = None) -> None:
        self._data, self._ends, self._spans = data, ends, spans
        self._starts = np.concatenate(([0], ends[:-1])) if starts is None else starts
        self._names = Packed(data, spans[gather.NAME_STARTS], spans[gather.NAME_ENDS])
        self._values = Packed(data, spans[gather.HEADER_STARTS], spans[gather.HEADER_ENDS])

    def __getitem__(self, place: int) -> Headers | None:
        own = range(int(self._starts[place]), int(self._ends[place]))
        try:
            return [((self._names[i] or b"").decode(), self._values[i]) for i in own] or None
        except UnicodeDecodeError as error:
            raise UnreadableHeaders from error

    def at(self, places: Int64s) -> PackedHeaders:
        return PackedHeaders(self._data, self._ends[places], self._spans, self._starts[places])

    @property
    def there_are_none(self) -> bool:
        return not self._spans.shape[1]


def _log(level: int, text: str) -> None:
    clients.LOGGER.log(_LEVELS[min(level, len(_LEVELS) - 1)], text)

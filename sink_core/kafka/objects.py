"""Records by confluent_kafka, an object for each: wherever kernels can't be had, or aren't worth their loading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import cast

import numpy as np
from confluent_kafka import KafkaError, Message, TopicPartition

from calve.sink_core.kafka import clients
from calve.sink_core.kafka.delivery import Delivered, Event
from calve.sink_core.kafka.messages import Headers, Messages, SliceIndex, UnreadableHeaders
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.packed import Int64s

# The client returns a list and leaves an exception set. A call written as `record.headers()` is, once it is hot,
# specialised to one that does not look for that: the exception then surfaces anywhere, and the list crashes its reader.
_ask_headers = methodcaller("headers")
_UNREADABLE = (UnicodeDecodeError, SystemError)
_TYPE, _MOMENT = itemgetter(0), itemgetter(1)


class Objects:
    """A `Delivery`. `settings` are librdkafka's with references unresolved; `on_error` hears of the client's errors."""

    def __init__(
        self,
        settings: clients.Settings,
        index: SliceIndex,
        *,
        group: str,
        on_error: Callable[[KafkaError], None],
        **overrides: object,
    ) -> None:
        self._index = index
        self._consumer = clients.reader(settings, group=group, error_cb=on_error, **overrides)

    def assign(self, slices: Sequence[OffsetRange]) -> None:
        """As `Delivery` says, and so do the others."""
        self._consumer.assign([TopicPartition(s.topic, s.partition, s.start) for s in slices])

    def receive(self, most: int, timeout_s: float) -> Delivered | None:
        received = clients.receive(self._consumer, most, timeout_s)
        if not received:
            return None
        all_records = not any(map(Message.error, received))
        records = received if all_records else [m for m in received if m.error() is None]
        events = [] if all_records else [self._event(m, error) for m in received if (error := m.error()) is not None]
        return Delivered(columns(records, self._index) if records else None, events)

    def _event(self, message: Message, error: KafkaError) -> Event:
        topic = message.topic()
        of = None if topic is None else self._index.of(topic, _partition(message))
        return Event(error, of, message.offset() or 0)

    def pause(self, part: OffsetRange) -> None:
        self._consumer.pause([TopicPartition(part.topic, part.partition)])

    def watermarks(self, part: OffsetRange, timeout_s: float) -> tuple[int, int]:
        at = TopicPartition(part.topic, part.partition)
        return self._consumer.get_watermark_offsets(at, timeout=timeout_s)

    def close(self) -> None:
        self._consumer.close()


def columns(messages: list[Message], index: SliceIndex) -> Messages:
    """The columns of `messages`, none of which carries an error."""
    n = len(messages)
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    # Bytes say their length in a third of the time a message takes; a tombstone has none.
    sizes = np.fromiter(map(len, cast(list[bytes], values) if all(values) else messages), np.int64, n)
    if any(keys):
        sizes += np.fromiter((len(key or b"") for key in keys), np.int64, n)
    timestamps = list(map(Message.timestamp, messages))
    return Messages(
        slices=_slices(messages, index),
        offsets=np.fromiter(map(Message.offset, messages), np.int64, n),
        stated_ms=np.fromiter(map(_MOMENT, timestamps), np.int64, n),
        timestamp_types=np.fromiter(map(_TYPE, timestamps), np.int64, n),
        sizes=sizes,
        keys=keys,
        values=values,
        headers=ObjectHeaders(messages, set()),
    )


class ObjectHeaders:
    """As `HeadersOf`. `unreadable` are the ids of messages whose headers could not be read.

    Asked a second time, the client hands out the broken list it has kept, which crashes its reader.
    """

    def __init__(self, messages: Sequence[Message], unreadable: set[int]) -> None:
        self._messages, self._unreadable = messages, unreadable

    def __getitem__(self, place: int) -> Headers | None:
        message = self._messages[place]
        if id(message) in self._unreadable:
            raise UnreadableHeaders
        try:
            return cast(Headers | None, _ask_headers(message))
        except _UNREADABLE as error:
            self._unreadable.add(id(message))
            raise UnreadableHeaders from error

    def at(self, places: Int64s) -> ObjectHeaders:
        return ObjectHeaders([self._messages[place] for place in places], self._unreadable)

    @property
    def there_are_none(self) -> bool:
        return False


def _slices(messages: Sequence[Message], index: SliceIndex) -> Int64s:
    """A lookup by name costs as much as all else that is done to a record here."""
    if len(index) == 1:
        return np.zeros(len(messages), np.int64)
    if index.topic is not None:
        partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        return index.of_topic(index.topic)[partitions]
    return np.array([index.of(str(m.topic()), _partition(m)) for m in messages], np.int64)


def _partition(message: Message) -> int:
    partition = message.partition()
    return -1 if partition is None else partition

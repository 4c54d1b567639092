"""A batch of Kafka messages as columns: what can be said about 10,000 records at once is not said record by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import cast

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import OffsetRange

MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, since 1970. A record's own timestamp that is later no reader could show."""

Int64s = npt.NDArray[np.int64]

_MOMENT = itemgetter(1)
"""Of a message's timestamp, which begins with its type."""


@dataclass(frozen=True, slots=True)
class Messages:
    """n records, those of each slice in the order of their offsets.

    `slices` says for each record which of the reader's slices it belongs to. `timestamps_ms` are -1 where there is
    none, or one after the year 9999, `sizes` are the bytes of key and value. `values` are None for tombstones, `keys`
    for records without one.
    """

    records: list[Message]
    slices: Int64s
    offsets: Int64s
    timestamps_ms: Int64s
    sizes: Int64s
    keys: list[bytes | None]
    values: list[bytes | None]

    def __len__(self) -> int:
        return len(self.records)

    def at(self, places: Int64s) -> Messages:
        """The records at `places`, which are in order."""
        if len(places) == len(self):
            return self
        return Messages(
            records=[self.records[i] for i in places],
            slices=self.slices[places],
            offsets=self.offsets[places],
            timestamps_ms=self.timestamps_ms[places],
            sizes=self.sizes[places],
            keys=[self.keys[i] for i in places],
            values=[self.values[i] for i in places],
        )

    def by_slice(self) -> Iterator[tuple[int, Int64s]]:
        """Each slice that has records, and their places in order."""
        order = np.argsort(self.slices, kind="stable")
        bounds = np.flatnonzero(np.diff(self.slices[order])) + 1
        for places in np.split(order, bounds) if len(order) else []:
            yield int(self.slices[places[0]]), places


class SliceIndex:
    """Which slice a message belongs to."""

    def __init__(self, slices: Sequence[OffsetRange]) -> None:
        self._by_name = {(part.topic, part.partition): i for i, part in enumerate(slices)}
        self._partitions_only = len({part.topic for part in slices}) == 1
        self._by_partition = np.full(max((part.partition for part in slices), default=0) + 1, -1, np.int64)
        for i, part in enumerate(slices):
            self._by_partition[part.partition] = i

    def __len__(self) -> int:
        return len(self._by_name)

    def of(self, message: Message) -> int:
        return self._by_name[_topic(message), _partition(message)]

    def all_of(self, messages: Sequence[Message]) -> Int64s:
        """As `of`, for many; a lookup by name costs as much as all else that is done to a record here."""
        if len(self) == 1:
            return np.zeros(len(messages), np.int64)
        if self._partitions_only:
            return self._by_partition[np.fromiter(map(Message.partition, messages), np.int64, len(messages))]
        return np.array([self.of(message) for message in messages], np.int64)


def columns(messages: list[Message], index: SliceIndex) -> Messages:
    """The columns of `messages`, none of which carries an error."""
    n = len(messages)
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    # Bytes say their length in a third of the time a message takes; a tombstone has none.
    sizes = np.fromiter(map(len, cast(list[bytes], values) if all(values) else messages), np.int64, n)
    if any(keys):
        sizes += np.fromiter((len(key or b"") for key in keys), np.int64, n)
    timestamps_ms = np.fromiter(map(_MOMENT, map(Message.timestamp, messages)), np.int64, n)
    # A producer that takes microseconds for milliseconds; no reader of the table could show it.
    timestamps_ms[(timestamps_ms < 0) | (timestamps_ms > MAX_MS)] = -1
    return Messages(
        records=messages,
        slices=index.all_of(messages),
        offsets=np.fromiter(map(Message.offset, messages), np.int64, n),
        timestamps_ms=timestamps_ms,
        sizes=sizes,
        keys=keys,
        values=values,
    )


def only(messages: Messages, keep: npt.NDArray[np.bool_]) -> Messages:
    """The records where `keep` is true."""
    return messages if keep.all() else messages.at(np.flatnonzero(keep))


def count(messages: Messages, counts: Sequence[PartitionCounts]) -> None:
    """Add what the broker delivered to the counts of each slice."""
    for i, places in messages.by_slice():
        delivered = counts[i]
        delivered.records += len(places)
        delivered.value_bytes += int(messages.sizes[places].sum())
        delivered.max_timestamp_ms = max(delivered.max_timestamp_ms, int(messages.timestamps_ms[places].max()))
        delivered.timestamp_type = messages.records[places[-1]].timestamp()[0]


def _topic(message: Message) -> str:
    return str(message.topic())


def _partition(message: Message) -> int:
    partition = message.partition()
    return -1 if partition is None else partition

"""A batch of Kafka records as columns: what can be said of thousands of records at once is not said one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.packed import Int64s, Packed, taken

MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, since 1970. A record's own timestamp that is later no reader could show."""

Bools = npt.NDArray[np.bool_]
Headers = list[tuple[str, bytes | None]]


class UnreadableHeaders(ValueError):
    """The name of a record's header is not UTF-8."""


class HeadersOf(Protocol):
    """The headers of n records, made when they are asked for."""

    def __getitem__(self, place: int) -> Headers | None:
        """Those of one record; None if it has none. Raises UnreadableHeaders."""
        ...

    def at(self, places: Int64s) -> HeadersOf:
        """Of the records at `places`."""
        ...

    @property
    def there_are_none(self) -> bool:
        """Whether no record is known to have any."""
        ...


@dataclass(frozen=True, slots=True)
class Messages:
    """n records, those of each slice in the order of their offsets.

    `slices` says for each record which of the reader's slices it belongs to. `stated_ms` are the timestamps as they
    are, of which `timestamp_types` says what they are; `sizes` are the bytes of key and value. `values` are None for
    tombstones, `keys` for records without one.
    """

    slices: Int64s
    offsets: Int64s
    stated_ms: Int64s
    timestamp_types: Int64s
    sizes: Int64s
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: HeadersOf

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def timestamps_ms(self) -> Int64s:
        """The timestamps, -1 where there is none, or one after the year 9999."""
        # A producer that takes microseconds for milliseconds; no reader of the table could show it.
        hidden = (self.stated_ms < 0) | (self.stated_ms > MAX_MS)
        return np.where(hidden, -1, self.stated_ms) if hidden.any() else self.stated_ms

    @property
    def tombstones(self) -> Bools:
        """Which records have no value."""
        if isinstance(self.values, Packed):
            return self.values.nulls
        return np.fromiter((value is None for value in self.values), np.bool_, len(self))

    def at(self, places: Int64s) -> Messages:
        """The records at `places`, which are in order."""
        if len(places) == len(self):
            return self
        return Messages(
            slices=self.slices[places],
            offsets=self.offsets[places],
            stated_ms=self.stated_ms[places],
            timestamp_types=self.timestamp_types[places],
            sizes=self.sizes[places],
            keys=taken(self.keys, places),
            values=taken(self.values, places),
            headers=self.headers.at(places),
        )

    def by_slice(self) -> Iterator[tuple[int, Int64s]]:
        """Each slice that has records, and their places in order."""
        if len(self) and (self.slices == self.slices[0]).all():
            yield int(self.slices[0]), np.arange(len(self))
            return
        order = np.argsort(self.slices, kind="stable")
        bounds = np.flatnonzero(np.diff(self.slices[order])) + 1
        for places in np.split(order, bounds) if len(order) else []:
            yield int(self.slices[places[0]]), places


class SliceIndex:
    """Which slice a message belongs to."""

    def __init__(self, slices: Sequence[OffsetRange]) -> None:
        self._by_name = {(part.topic, part.partition): i for i, part in enumerate(slices)}
        self.topic = slices[0].topic if len({part.topic for part in slices}) == 1 else None
        self._largest = max((part.partition for part in slices), default=0)

    def __len__(self) -> int:
        return len(self._by_name)

    def of(self, topic: str, partition: int) -> int:
        """The slice of a message."""
        return self._by_name[topic, partition]

    def of_topic(self, topic: str) -> Int64s:
        """The slice of each partition by its number, -1 where the topic has none."""
        found = np.full(self._largest + 1, -1, np.int64)
        for (name, partition), i in self._by_name.items():
            if name == topic:
                found[partition] = i
        return found


def only(messages: Messages, keep: Bools) -> Messages:
    """The records where `keep` is true."""
    return messages if keep.all() else messages.at(np.flatnonzero(keep))


def count(messages: Messages, counts: Sequence[PartitionCounts]) -> None:
    """Add what the broker delivered to the counts of each slice."""
    shown = messages.timestamps_ms
    for i, places in messages.by_slice():
        delivered = counts[i]
        delivered.records += len(places)
        delivered.value_bytes += int(messages.sizes[places].sum())
        delivered.max_timestamp_ms = max(delivered.max_timestamp_ms, int(shown[places].max()))
        delivered.timestamp_type = int(messages.timestamp_types[places[-1]])

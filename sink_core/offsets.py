"""Offsets, in one convention: ranges are half-open, `[start, end)`, and every offset is the *next* one to read.

librdkafka and Kafka speak of the next offset in positions and end offsets, and of a record's own offset in messages.
`after` is the only place that turns the second into the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

_MARK = "+"

NOWHERE = -1
"""Stands in dense values for a partition that has none."""

Dense = Mapping[str, tuple[int, ...]]
"""Values by topic, at the place of each partition: as events hold them."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition. Raises ValueError if `end < start` or `start < 0`."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a half-open range: {self.topic}[{self.partition}] [{self.start}, {self.end})")

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def span(self) -> int:
        """Number of offsets, which is at least the number of records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset of the source group, and its metadata: the id of the batch that put it there, with a mark
    behind it if outstanding batches were given up since."""

    offset: int
    metadata: str

    @property
    def batch_id(self) -> str:
        return batch_id_of(self.metadata)

    def given_up(self, mark: str) -> Position:
        """The same position with a new mark, so that no plan made before continues it.

        Metadata that no publish wrote stays: it is somebody else's, and has to be found.
        """
        return self.marked(mark) if self.batch_id else self

    def marked(self, mark: str) -> Position:
        """The same position with a new mark, whoever wrote its metadata."""
        return replace(self, metadata=f"{self.batch_id}{_MARK}{mark}")


NO_TOKEN = Position(0, "")
"""The token of range jobs where none has been published or given up."""


def batch_id_of(metadata: str) -> str:
    """The batch that a position's metadata, or a plan's predecessor, names."""
    return metadata.partition(_MARK)[0]


Positions = Mapping[TopicPartition, Position]
Offsets = Mapping[TopicPartition, int]


def after(record_offset: int) -> int:
    """The next offset to read once the record at `record_offset` has been read."""
    return record_offset + 1


def dense_to_offsets(dense: Dense) -> dict[TopicPartition, int]:
    """`{topic: (value of partition 0, …)}` → one entry per partition that has a value."""
    return {
        TopicPartition(topic, partition): value
        for topic, values in dense.items()
        for partition, value in enumerate(values)
        if value != NOWHERE
    }


def offsets_to_dense(values: Offsets) -> dict[str, tuple[int, ...]]:
    """The reverse of `dense_to_offsets`."""
    highest: dict[str, int] = {}
    for at in values:
        highest[at.topic] = max(at.partition, highest.get(at.topic, 0))
    return {
        topic: tuple(values.get(TopicPartition(topic, p), NOWHERE) for p in range(last + 1))
        for topic, last in sorted(highest.items())
    }

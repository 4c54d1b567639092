"""The events of a mirror beside those of all slots, and their Avro fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from calve.sink_core.control import schemas
from calve.sink_core.control.events import ByPartition, Event
from calve.sink_core.control.slots.events import SLOT_CHECKPOINT, SLOT_COMMITTED, SlotCheckpoint, SlotCommitted
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tasks import Size


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedRange:
    """The source offsets `[start, end)` of one partition, and what they became: `records` from the target's offset
    `first` on, without a gap; `first` is -1 if the range held none.

    `segments` are runs of records whose source offsets follow each other, as pairs: the first offset, counted from
    `start`, and how many; where there were too many, several stand as one (see `mirror/segments.py`). `bytes` are those
    of keys and values, `digest` is of all that a record carries (see `mirror/digest.py`), `adjusted` counts records
    that are not quite as they were. `max_timestamp_ms` is -1 without records.
    """

    topic: str
    partition: int
    start: int
    end: int
    first: int
    records: int
    bytes: int
    digest: int
    max_timestamp_ms: int
    adjusted: int
    segments: tuple[int, ...]

    @property
    def at(self) -> TopicPartition:
        """The remote topic's partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def last(self) -> int:
        """The target's offset behind the last record; -1 if the range held none."""
        return self.first + self.records if self.records else -1


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsCopied(SlotCommitted):
    """What one transaction of a slot copied."""

    event_type: ClassVar[str] = "RECORDS_COPIED"
    ranges: tuple[CopiedRange, ...]

    @property
    def size(self) -> Size:
        return Size(sum(part.records for part in self.ranges), sum(part.bytes for part in self.ranges))


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRefused(Event):
    """A topic stands still, and all others go on. For people; no rule rests on it.

    `topic` is the remote topic. The record that can't be copied is of its `partition`, and the source's `offset`; both
    are -1 where it is the topic as a whole. `why` is empty once nothing is in its way any more: of a record, its range
    says so.
    """

    event_type: ClassVar[str] = "TOPIC_REFUSED"
    topic: str
    partition: int
    offset: int
    code: str
    why: str
    hint: str

    def repeats(self, other: TopicRefused) -> bool:
        """Whether it says what `other` does. A batch is refused as a whole, and another try may begin it elsewhere."""
        return (self.partition, self.code) == (other.partition, other.code)


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorCheckpoint(SlotCheckpoint):
    """Adds what each partition of a remote topic has: how many records, and the target's offset behind the last one."""

    event_type: ClassVar[str] = "CHECKPOINT"
    records: ByPartition
    target_ends: ByPartition


_RANGE: schemas.Schema = {
    "type": "record",
    "name": "CopiedRange",
    "fields": [
        *schemas.strings("topic"),
        *(
            {"name": name, "type": "long"}
            for name in (
                "partition",
                "start",
                "end",
                "first",
                "records",
                "bytes",
                "digest",
                "max_timestamp_ms",
                "adjusted",
            )
        ),
        {"name": "segments", "type": {"type": "array", "items": "long"}},
    ],
}
RECORDS_COPIED: schemas.Fields = [*SLOT_COMMITTED, {"name": "ranges", "type": {"type": "array", "items": _RANGE}}]
TOPIC_REFUSED: schemas.Fields = [
    *schemas.strings("topic", "code", "why", "hint"),
    *({"name": name, "type": "long"} for name in ("partition", "offset")),
]
MIRROR_CHECKPOINT: schemas.Fields = [
    *SLOT_CHECKPOINT,
    {"name": "records", "type": schemas.BY_PARTITION},
    {"name": "target_ends", "type": schemas.BY_PARTITION},
]

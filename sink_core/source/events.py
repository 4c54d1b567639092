"""The events of a source beside those of all slots, and their Avro fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from calve.sink_core.control import schemas
from calve.sink_core.control.slots.events import SLOT_CHECKPOINT, SLOT_COMMITTED, SlotCheckpoint, SlotCommitted
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tasks import Size


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A source partition whose offset moved, all as JSON; `before` is empty where it had none, `after` where it has
    none any more.
    """

    partition: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a partition of a topic got: `records` at the offsets `[first, end)`, between which others may have written;
    `bytes` of keys and values.
    """

    topic: str
    partition: int
    first: int
    end: int
    records: int
    bytes: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsSent(SlotCommitted):
    """What one transaction of a slot sent. `dropped` rows gave no record, `dead_letters` went to the dead letters."""

    event_type: ClassVar[str] = "ROWS_SENT"
    moved: tuple[Moved, ...]
    written: tuple[Written, ...]
    dropped: int = 0
    dead_letters: int = 0

    @property
    def size(self) -> Size:
        return Size(sum(each.records for each in self.written), sum(each.bytes for each in self.written))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceCheckpoint(SlotCheckpoint):
    """Adds source offsets by source partition, as JSON, and how many records there were in all."""

    event_type: ClassVar[str] = "CHECKPOINT"
    offsets: Mapping[str, str]
    records: int
    dead_letters: int


def _array(name: str, fields: schemas.Fields) -> schemas.Schema:
    return {"type": "array", "items": {"type": "record", "name": name, "fields": [*fields]}}


def _longs(*names: str) -> list[schemas.Schema]:
    return [{"name": name, "type": "long"} for name in names]


_MOVED = _array("Moved", schemas.strings("partition", "before", "after"))
_WRITTEN = _array("Written", [*schemas.strings("topic"), *_longs("partition", "first", "end", "records", "bytes")])

ROWS_SENT: schemas.Fields = [
    *SLOT_COMMITTED,
    {"name": "moved", "type": _MOVED},
    {"name": "written", "type": _WRITTEN},
    *_longs("dropped", "dead_letters"),
]
SOURCE_CHECKPOINT: schemas.Fields = [
    *SLOT_CHECKPOINT,
    {"name": "offsets", "type": schemas.STRING_MAP},
    *_longs("records", "dead_letters"),
]

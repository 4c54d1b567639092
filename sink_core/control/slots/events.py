"""The events of kinds that move records by slots, and their Avro fields. A kind has its own `SlotCommitted`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from calve.sink_core.control import schemas
from calve.sink_core.control.events import BatchPublished, ByPartition, Checkpoint, Event
from calve.sink_core.tasks import Size


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationStarted(BatchPublished):
    """A driver leads from here on: tasks of every generation before are fenced, or stop by themselves.

    `batch_id` is the generation. `positions` are start positions of the partitions that the log did not know,
    `topic_ids` the UUIDs of the topics that are written. `upstream_ids` say what is read: of a mirror the source topics
    and their UUIDs. `slots` is how many slots it may use.
    """

    event_type: ClassVar[str] = "GENERATION_STARTED"
    slots: int
    upstream_ids: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotCommitted(BatchPublished):
    """What a transaction of a slot moved; it stands in it. `positions` are of the partitions that it moved."""

    slot: int
    predecessor: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def size(self) -> Size:
        """What it moved; each kind knows."""
        return Size()


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationEnded(Event):
    """The driver of a generation has no task left. For people, and for who waits for a pause; no rule rests on it.

    `written_by` is the engine of its slots, as of `WrittenBy.to_map`; empty if there were none.
    """

    event_type: ClassVar[str] = "GENERATION_ENDED"
    batch_id: str
    why: str
    written_by: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionsKept(Event):
    """Every position was committed again as it was, so that the broker keeps those of partitions in
    which nothing moves.
    """

    event_type: ClassVar[str] = "POSITIONS_KEPT"
    batch_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionsSet(BatchPublished):
    """Somebody moved positions by hand, in a generation of its own: a link of the chain that moved no records.

    Ids are of topics that were made anew, which it goes on with.
    """

    event_type: ClassVar[str] = "POSITIONS_SET"
    by: str
    reason: str
    predecessor: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    upstream_ids: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotCheckpoint(Checkpoint):
    """Adds the most slots that any generation had, what was read, where each partition began, and when all positions
    were committed last.
    """

    most_slots: int
    kept_ms: int
    upstream_ids: Mapping[str, str]
    begins: ByPartition


GENERATION_STARTED: schemas.Fields = [
    *schemas.strings("batch_id", "predecessor"),
    {"name": "slots", "type": "long"},
    {"name": "positions", "type": schemas.BY_PARTITION},
    {"name": "topic_ids", "type": schemas.STRING_MAP},
    {"name": "upstream_ids", "type": schemas.STRING_MAP},
]
SLOT_COMMITTED: schemas.Fields = [
    *schemas.strings("batch_id", "predecessor"),
    {"name": "slot", "type": "long"},
    {"name": "positions", "type": schemas.BY_PARTITION},
    {"name": "topic_ids", "type": schemas.STRING_MAP},
]
POSITIONS_KEPT: schemas.Fields = schemas.strings("batch_id")
GENERATION_ENDED: schemas.Fields = [
    *schemas.strings("batch_id", "why"),
    {"name": "written_by", "type": schemas.STRING_MAP, "default": {}},
]
POSITIONS_SET: schemas.Fields = [
    *schemas.strings("batch_id", "predecessor", "by", "reason"),
    {"name": "positions", "type": schemas.BY_PARTITION},
    {"name": "topic_ids", "type": schemas.STRING_MAP},
    {"name": "upstream_ids", "type": schemas.STRING_MAP},
]
SLOT_CHECKPOINT: schemas.Fields = [
    *schemas.CHECKPOINT,
    {"name": "most_slots", "type": "long"},
    {"name": "kept_ms", "type": "long"},
    {"name": "upstream_ids", "type": schemas.STRING_MAP},
    {"name": "begins", "type": schemas.BY_PARTITION},
]

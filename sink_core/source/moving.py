"""Source offsets that are moved without records: by hand, from another topic, and in the log behind Kafka Connect.

Under a generation that leads, one transaction of its first slot holds the offsets and the event that says so: offsets
topic and control log tell the same, or neither has heard of it.

Crash points are those of the generation (`control/slots/leading.py`), of the slot and of its transaction
(`control/slots/slot.py`). Up to `transaction.after-offsets` nothing of it is there: what is open the next fence aborts,
and the offsets are moved again. `source.after-offsets` lies between the offsets and the event. From
`transaction.after-commit` on all of it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.slot import Overtaken, Slot
from calve.sink_core.errors import RetriableError
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import existing_topic_ids
from calve.sink_core.source.base import Stored
from calve.sink_core.source.events import Moved, RowsSent
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.offsets_topic import MIGRATED, OffsetsTopic, key_of, sentinel_key
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.state import SOURCE


@dataclass(frozen=True, slots=True)
class Move:
    """A source partition: its offset by the offsets topic, that by the control log, and the one it gets; None: none."""

    partition: FlatMap
    stored: FlatMap | None
    logged: FlatMap | None
    after: FlatMap | None


def to_migrate(plane: SourcePlane, *, settled: bool = True) -> OffsetsTopic | None:
    """The topic whose offsets are to be copied, read; None where there is nothing to do.

    That is so without `offsets.migrate_from`, where they were copied before, and where the pipeline has had offsets of
    its own. Raises ConfigError if there is no such topic.
    """
    origin, own = plane.pipeline.config.offsets.migrate_from, plane.offsets
    if origin is None or own.migrated or own.keys:
        return None
    settings, connector = plane.pipeline.kafka.properties, plane.pipeline.connector
    topic = OffsetsTopic(settings, origin, connector, admin=plane.admin, group=plane.pipeline.group)
    topic.refresh(settled=settled)
    return topic


def stored_now(plane: SourcePlane) -> Stored:
    """The source offsets that a generation would go on from: of the offsets topic, or those to be copied to it."""
    own = plane.offsets
    if existing_topic_ids(plane.admin, [own.topic], timeout_s=ADMIN_TIMEOUT_S):
        own.refresh(settled=False)
    origin = to_migrate(plane, settled=False)
    return dict(own.stored if origin is None else origin.stored)


def migrate(plane: SourcePlane, generation: str) -> Stored:
    """Copy the offsets of `offsets.migrate_from`, all of them and once; returns what is stored then.

    A sentinel in the same transaction says that they were. The offsets topic must have been read. Raises as `move`.
    """
    origin = to_migrate(plane)
    if origin is None:
        return dict(plane.offsets.stored)
    moves = [Move(partition, None, None, offset) for partition, offset in sorted(origin.stored.items())]
    records: dict[bytes, bytes | None] = {origin.keys[each.partition]: _value(each.after) for each in moves}
    records[sentinel_key(plane.pipeline.connector)] = MIGRATED.json.encode()
    _commit(plane, generation, records, moves)
    return dict(plane.offsets.refresh())


def move(plane: SourcePlane, generation: str, moves: Iterable[Move]) -> None:
    """Store the offsets that `moves` have as `after`; None takes one away, by a tombstone.

    Raises RetriableError if another generation, or a task of Kafka Connect, leads by now: nothing was changed then.
    """
    moves, connector, keys = list(moves), plane.pipeline.connector, plane.offsets.keys
    records = {keys.get(m.partition) or key_of(connector, m.partition): _value(m.after) for m in moves}
    _commit(plane, generation, records, moves)


def adopt(plane: SourcePlane, generation: str, moves: Iterable[Move]) -> None:
    """Have the control log say what the offsets topic has: `after` of `moves` is what somebody stored there.

    Raises as `move`.
    """
    _commit(plane, generation, {}, list(moves))


def _commit(plane: SourcePlane, generation: str, records: Mapping[bytes, bytes | None], moves: Iterable[Move]) -> None:
    moved = tuple(Moved(partition=m.partition.json, before=_json(m.logged), after=_json(m.after)) for m in moves)
    event = RowsSent(pipeline_id=plane.pipeline_id, batch_id=generation, slot=0, positions={}, moved=moved, written=())
    try:
        with Slot(plane.slot_spec(0, generation)) as slot:
            slot.check(())
            # A connector's task may have had the slot between the generation's fence and this one.
            if touched := plane.offsets.touched_since(plane.offsets.ends):
                raise Overtaken(f"somebody has moved {min(touched).json} meanwhile")
            slot.begin()
            with slot.reported("storing source offsets"):
                for key, value in records.items():
                    slot.producer.produce(plane.offsets.topic, value, key)
                reach("source.after-offsets")
            slot.commit(event, SOURCE.encode(event), {})
    except Overtaken as overtaken:
        raise overtaken_by(str(overtaken)) from overtaken


def overtaken_by(why: str) -> RetriableError:
    """What is raised where somebody else was faster."""
    return RetriableError(f"{why}; nothing was changed", hint="look at it again, and run again", code=Code.OVERTAKEN)


def _value(offset: FlatMap | None) -> bytes | None:
    return None if offset is None else offset.json.encode()


def _json(offset: FlatMap | None) -> str:
    return "" if offset is None else offset.json

"""The events that publish a range job which moves dead letters into tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from calve.sink_core.offset_sets import runs, union
from calve.sink_core.offsets import Position, TopicPartition
from calve.sink_core.sink.loop.complete import COUNTED, written
from calve.sink_core.tables.batch import TableOutput
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.log.range_parts import RangeRead

OffsetSets = Mapping[TopicPartition, BitMap64]


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of the dead letters that a job has tried, by their offsets.

    `moved` go to the tables; `changed` stay, with another error; `same` stay as they are and are no part of the job.
    """

    moved: OffsetSets
    changed: OffsetSets
    same: OffsetSets

    @property
    def number_moved(self) -> int:
        return sum(map(len, self.moved.values()))

    @property
    def number_left(self) -> int:
        return sum(map(len, self.changed.values())) + sum(map(len, self.same.values()))

    @property
    def left(self) -> OffsetSets:
        return union([self.changed, self.same])

    @property
    def ranges(self) -> tuple[RangeRead, ...]:
        """All that leave the dead letters; those without rows come back with another error."""
        moved = [RangeRead(*at, start, end, end - start) for at, s in self.moved.items() for start, end in runs(s)]
        changed = [RangeRead(*at, start, end, 0) for at, s in self.changed.items() for start, end in runs(s)]
        return tuple(sorted([*moved, *changed]))


def events(
    batch_id: str,
    token: Position,
    tried: Tried,
    outputs: Sequence[TableOutput],
    letters: TableOutput,
    topic_ids: Mapping[str, str],
    pipeline_id: str,
    instant_ms: int,
) -> list[DataWritten | DataComplete]:
    """What publishes the job: rows for each of `outputs`, and for the dead letters what leaves and what comes back."""
    rows = [written(batch_id, output, pipeline_id) for output in outputs]
    leaving = replace(written(batch_id, letters, pipeline_id), removes=True)
    # Nothing was read: records and dead letters are counted by the batches that read them.
    totals = {**dict.fromkeys(COUNTED, 0), "offsets": tried.number_moved + tried.number_left, "batches": 0}
    totals["files"] = sum(output.files for output in (*outputs, letters))
    complete = DataComplete(
        pipeline_id=pipeline_id,
        batch_id=batch_id,
        predecessor=token.metadata,
        kind="range",
        tables=tuple(output.table for output in (*outputs, letters)),
        totals=totals,
        topic_ids=topic_ids,
        positions={},
        through_ms={},
        through_is_estimate=True,
        value_bytes_by_topic={},
        records_by_topic={},
        ranges=tried.ranges,
        instant_ms=instant_ms,
    )
    return [*rows, leaving, complete]

"""Offsets of dead letters that range jobs have moved into tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from calve.sink_core.control.range_parts import RangeJob
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.verify.offset_sets import of_range


@dataclass(frozen=True, slots=True)
class Moved:
    """Offsets by partition and topic id: those of a topic that was created again since are not today's."""

    offsets: Mapping[tuple[TopicPartition, str], BitMap64]

    def within(self, at: TopicPartition, topic_id: str, start: int, end: int) -> int:
        """How many of them lie in `[start, end)` of the partition of the topic with that id."""
        return self.offsets.get((at, topic_id), BitMap64()).range_cardinality(start, end)


def moved_by(jobs: Iterable[RangeJob]) -> Moved:
    """What those of `jobs` have moved that have tried dead letters again, each offset once."""
    found: dict[tuple[TopicPartition, str], BitMap64] = {}
    for job in jobs:
        for part in job.ranges if job.letters else ():
            if part.rows:
                place = (part.at, job.topic_ids.get(part.topic, ""))
                found.setdefault(place, BitMap64()).update(of_range(part.start, part.end))
    return Moved(found)

"""What the next generation would copy, and make of the target first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calve.sink_core.mirror import topics
from calve.sink_core.mirror.batches import Copier
from calve.sink_core.mirror.plan import by_slot, spans
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.report import Line, Shown, Table, range_cells
from calve.sink_core.tasks import InProcessTasks, TasksBySize
from calve.sink_core.wording import bytes_text, counted


@dataclass(frozen=True, slots=True)
class CopyPreview:
    """What a generation would copy: ranges of the source, by how many slots; `remotes` are all remote topics, by source
    topic, `created` those that are not there yet.
    """

    pipeline: str
    start: str
    bootstrapped: bool
    ranges: tuple[OffsetRange, ...]
    slots: int
    estimated_bytes: int
    remotes: Mapping[str, str]
    created: tuple[str, ...]

    @property
    def offsets(self) -> int:
        return sum(part.span for part in self.ranges)

    def to_json(self) -> dict[str, Any]:
        batch = {
            "offsets": self.offsets,
            "estimated_bytes": self.estimated_bytes,
            "slots": self.slots,
            "ranges": [[r.topic, r.partition, r.start, r.end] for r in self.ranges],
            "remote_topics": dict(self.remotes),
            "topics_created": list(self.created),
        }
        return {"bootstrapped": self.bootstrapped, "batch": batch if self.ranges else None}

    def lines(self) -> Iterator[Shown]:
        if not self.bootstrapped:
            yield Line(f"pipeline {self.pipeline} has not run yet: the first run begins at start: {self.start}")
        if self.ranges:
            size, slots = bytes_text(self.estimated_bytes), counted(self.slots, "slot", "slots")
            yield Line(f"next batch: {self.offsets:,} offsets, about {size}, by {slots}")
            columns = ["topic", "partition", "start", "end", "offsets", "remote topic"]
            yield Table("ranges", columns, [[*range_cells(r), self.remotes[r.topic]] for r in self.ranges])
        else:
            yield Line("nothing to copy")
        if self.created:
            yield Line(f"topics to be created: {', '.join(self.created)}")


def preview(plane: MirrorPlane) -> CopyPreview:
    """Of the source as it is now, with as many slots as this machine has cores. Writes nothing."""
    plane.read_only()
    in_process = InProcessTasks(plane.pipeline.spark.tasks or os.cpu_count() or 1)
    plane.tasks = TasksBySize(in_process, plane.pipeline.config.batch.spark_from_records)
    copier, seen, state = Copier(plane), topics.look(plane), plane.log.state
    remote = seen.remote
    known = {at: state.partitions[remote[at]] for at in seen.ends if remote[at] in state.partitions}
    shares = copier.next_of(seen, {**known, **copier.starts(seen, state)})
    remotes = {topic: plane.pipeline.remote_of(topic) for topic in seen.topics}
    return CopyPreview(
        pipeline=plane.pipeline.name,
        start=str(plane.pipeline.config.source.start),
        bootstrapped=state.last_batch_id is not None,
        ranges=tuple(part for part in shares.ranges if part.span) if shares else (),
        slots=len(by_slot(shares, copier.slots(spans([shares.ranges])))) if shares else 0,
        estimated_bytes=shares.estimated_bytes if shares else 0,
        remotes=remotes,
        created=tuple(sorted(name for name, found in topics.remote_ids(plane, remotes).items() if found is None)),
    )

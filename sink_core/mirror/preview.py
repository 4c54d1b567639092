"""What the next generation would copy, and make of the target first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calve.sink_core.mirror import topics
from calve.sink_core.mirror.batches import Copier
from calve.sink_core.mirror.plan import by_slot, spans
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class CopyPreview:
    """What a generation would copy: ranges of the source, by how many slots; `remotes` are all remote topics, by source
    topic, `created` those that are not there yet.
    """

    bootstrapped: bool
    ranges: tuple[OffsetRange, ...]
    slots: int
    estimated_bytes: int
    remotes: Mapping[str, str]
    created: tuple[str, ...]

    @property
    def offsets(self) -> int:
        return sum(part.span for part in self.ranges)


def preview(plane: MirrorPlane) -> CopyPreview:
    """Of the source as it is now. Writes nothing; the control topic must have been read, if there is one."""
    copier, seen, state = Copier(plane), topics.look(plane), plane.log.state
    remote = seen.remote
    known = {at: state.partitions[remote[at]] for at in seen.ends if remote[at] in state.partitions}
    shares = copier.next_of(seen, {**known, **copier.starts(seen, state)})
    remotes = {topic: plane.pipeline.remote_of(topic) for topic in seen.topics}
    return CopyPreview(
        bootstrapped=state.last_batch_id is not None,
        ranges=tuple(part for part in shares.ranges if part.span) if shares else (),
        slots=len(by_slot(shares, copier.slots(spans([shares.ranges])))) if shares else 0,
        estimated_bytes=shares.estimated_bytes if shares else 0,
        remotes=remotes,
        created=tuple(sorted(name for name, found in topics.remote_ids(plane, remotes).items() if found is None)),
    )

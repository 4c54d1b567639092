"""Positions of a mirror, set by hand while it is paused: what would be copied again or never, then the move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, RetriableError
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.offsets import Offsets, TopicPartition

WHY = "positions set"


@dataclass(frozen=True, slots=True)
class Move:
    """A partition of the source, its remote topic, where the mirror is and where it would be."""

    at: TopicPartition
    remote: TopicPartition
    position: int
    offset: int

    @property
    def again(self) -> int:
        """Offsets whose records would be copied once more, behind those that are there."""
        return max(0, self.position - self.offset)

    @property
    def never(self) -> int:
        """Offsets whose records would not be copied."""
        return max(0, self.offset - self.position)


def prepare(plane: MirrorPlane, wanted: Offsets) -> list[Move]:
    """What `carry_out` would change of the positions; those that are there already are left out.

    Raises ConfigError for a mirror that is not paused, and for offsets that the source does not have.
    """
    if not plane.read_only() or plane.log.state.last_batch_id is None:
        raise ConfigError(
            f"pipeline {plane.pipeline.name} has not run yet: it begins at source.start",
            hint="set source.start, or run it first: calve run FILE",
            code=Code.NOT_RUN_YET,
        )
    plane.bind()
    _check_paused(plane, plane.log.state)
    seen = topics.look(plane)
    remote, known = seen.remote, plane.log.state.partitions
    for at, offset in sorted(wanted.items()):
        if at not in remote or remote[at] not in known:
            raise ConfigError(
                f"{at}: this mirror has no position for it",
                hint=f"it has some of {', '.join(sorted(seen.topics)) or 'no topic'}: calve positions show FILE",
                code=Code.POSITION_OUTSIDE,
            )
        if not seen.starts[at] <= offset <= seen.ends[at]:
            raise ConfigError(
                f"{at}: offset {offset} is outside of what the source has, {seen.starts[at]} to {seen.ends[at]}",
                hint="records below are gone, records above are not there yet",
                code=Code.POSITION_OUTSIDE,
            )
    moves = [Move(at, remote[at], known[remote[at]], offset) for at, offset in sorted(wanted.items())]
    return [move for move in moves if move.offset != move.position]


def carry_out(plane: MirrorPlane, moves: Sequence[Move], *, by: str, reason: str) -> None:
    """Set them, in a generation of its own: every slot that may be left is fenced, and copies nothing any more.

    Raises RetriableError if a run or another hand was faster; nothing was changed then.
    """
    if not moves:
        return
    led = plane.lead_empty()
    if led is None:
        raise _overtaken("a run leads")
    try:
        _check_paused(plane, led.state)
        changed = [move for move in moves if led.state.partitions.get(move.remote) != move.position]
        if changed:
            raise _overtaken(f"{changed[0].at} is at {led.state.partitions.get(changed[0].remote)} by now")
        offsets = {move.remote: move.offset for move in moves}
        if not plane.set_positions(led, offsets, by=by, reason=reason):
            raise _overtaken("a run leads")
    finally:
        plane.end(led.generation, WHY)


def _check_paused(plane: MirrorPlane, state: MirrorState) -> None:
    if state.paused is None:
        raise ConfigError(
            f"pipeline {plane.pipeline.name} is not paused",
            hint="calve pause FILE --wait, and calve resume FILE afterwards",
            code=Code.POSITIONS_AT_WORK,
        )


def _overtaken(why: str) -> RetriableError:
    return RetriableError(f"{why}; nothing was changed", hint="look at it again, and run again", code=Code.OVERTAKEN)

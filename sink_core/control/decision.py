"""The decision at the moment of publishing. Pure: it gets what was read after the fence, and says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sink_core.batch import BatchPlan
from sink_core.control.state import CommitState
from sink_core.offsets import Positions


class Verdict(Enum):
    """What a publisher does after its fence."""

    PUBLISH = "publish"
    ALREADY_PUBLISHED = "already published"
    STALE = "stale batch"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the sentence that explains it."""

    verdict: Verdict
    why: str


def decide(plan: BatchPlan, positions: Positions, state: CommitState) -> Decision:
    """Whether the plan still continues what is published.

    `positions` are those of the plan's topics, read after the fence; `state` is the log read to the end seen after
    that. Our own id in either means that an earlier try of ours landed. Otherwise every position must equal the plan's
    start and carry its predecessor; a partition that the last publish did not have is new: it may have no position and
    begin where the plan begins, or one with old metadata (its topic was taken out of the file and put back).
    """
    ranges = {r.at: r for r in plan.ranges}
    mine = {at: position for at, position in positions.items() if at in ranges}
    if plan.batch_id in state.batches or any(p.batch_id == plan.batch_id for p in mine.values()):
        return Decision(Verdict.ALREADY_PUBLISHED, f"batch {plan.batch_id} is in the log; an earlier try landed")
    last = state.positions() or {}
    foreign = sorted({p.batch_id for at, p in mine.items() if at in last} - {plan.predecessor})
    if foreign:
        return Decision(
            Verdict.STALE,
            f"batch {plan.batch_id} continues {plan.predecessor}, but {', '.join(foreign)} has been published since",
        )
    for at, position in sorted(mine.items()):
        if position.offset != ranges[at].start:
            return Decision(
                Verdict.STALE, f"{at}: the plan starts at {ranges[at].start}, the position is {position.offset}"
            )
    gone = [at for at in sorted(ranges) if at in last and at not in mine]
    if gone:
        return Decision(Verdict.STALE, f"{gone[0]}: the plan starts at {ranges[gone[0]].start}, the position is gone")
    if not any(at in last for at in mine):
        return Decision(Verdict.STALE, f"the group has no position that batch {plan.batch_id} continues")
    return Decision(Verdict.PUBLISH, "positions and predecessor are as planned")

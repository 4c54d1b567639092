"""A sink's decision at the moment of publishing. Pure: it gets what was read after the fence, and says what to do."""

from __future__ import annotations

from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.offsets import Positions, batch_id_of
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.log.state import CommitState


def decide(plan: BatchPlan, positions: Positions, state: CommitState) -> Decision:
    """Whether the plan still continues what is published.

    `positions` are those of the plan's topics, read after the fence; `state` is the log read to the end seen after
    that. Our own id in either means that an earlier try of ours landed. Otherwise every position must equal the plan's
    start and carry its predecessor, with the mark of the last giving up; a partition that the last publish did not have
    is new: it may have no position and begin where the plan begins, or one with old metadata (its topic was taken out
    of the file and put back). If the plan has none of the last publish's partitions, all topics of which are gone, the
    log alone is asked: see `_by_log`.
    """
    rules = state.rules
    ranges = {r.at: r for r in plan.ranges}
    mine = {at: position for at, position in positions.items() if at in ranges}
    logged = rules.own_batch_is_looked_up and plan.batch_id in state.batches
    if logged or any(p.batch_id == plan.batch_id for p in mine.values()):
        return Decision(Verdict.ALREADY_PUBLISHED, f"batch {plan.batch_id} is in the log; an earlier try landed")
    if not rules.positions_are_compared:
        return Decision(Verdict.PUBLISH, "")
    last = state.positions() or {}
    foreign = sorted({p.metadata for at, p in mine.items() if at in last} - {plan.predecessor})
    if foreign and rules.predecessor_is_compared:
        return _stale(plan, foreign)
    for at, position in sorted(mine.items()):
        if position.offset != ranges[at].start:
            return Decision(
                Verdict.STALE, f"{at}: the plan starts at {ranges[at].start}, the position is {position.offset}"
            )
    gone = [at for at in sorted(ranges) if at in last and at not in mine]
    if gone:
        return Decision(Verdict.STALE, f"{gone[0]}: the plan starts at {ranges[gone[0]].start}, the position is gone")
    if not any(at in last for at in mine):
        return _by_log(plan, state)
    return Decision(Verdict.PUBLISH, "positions and predecessor are as planned")


def _by_log(plan: BatchPlan, state: CommitState) -> Decision:
    """For a plan without a position that could tell who published last, and whether it was given up since.

    Whoever publishes writes to the log in the same transaction. So does whoever gives up: each batch is named whose
    `START_COMMIT` is there by then. What a later one writes, orphan removal has not listed. No trim takes the second of
    the two events and leaves the first.
    """
    if plan.predecessor != state.last_batch_id:
        return _stale(plan, [state.last_batch_id or ""])
    if plan.batch_id in state.abandoned or plan.batch_id not in state.started:
        return _given_up(plan)
    return Decision(Verdict.PUBLISH, "the log's last batch is the predecessor; its topics are gone")


def _given_up(plan: BatchPlan) -> Decision:
    why = f"batch {plan.batch_id} was given up by orphan removal while it was in progress"
    return Decision(Verdict.STALE, f"{why}; its records are planned again", given_up=True)


def _stale(plan: BatchPlan, foreign: list[str]) -> Decision:
    """`foreign` is the metadata that the positions carry in place of the plan's predecessor."""
    if {batch_id_of(metadata) for metadata in foreign} == {batch_id_of(plan.predecessor)}:
        return _given_up(plan)
    ids = ", ".join(batch_id_of(metadata) or "none" for metadata in foreign)
    continues = batch_id_of(plan.predecessor)
    return Decision(Verdict.STALE, f"batch {plan.batch_id} continues {continues}, but {ids} has been published since")

"""The decision at the moment of publishing a range job. Pure: it gets what was read after the fence."""

from __future__ import annotations

from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.state import CommitState
from calve.sink_core.offsets import Position, batch_id_of


def decide(batch_id: str, planned: Position, found: Position, state: CommitState) -> Decision:
    """Whether the token is still the one that the job was planned with.

    Every range job that is published puts its id there, and giving up a mark: what the plan rests on (which ranges are
    missing) can have changed only if the token did. The log decides about the job's own id, as the token may have got
    a mark since.
    """
    if batch_id in state.batches or found.batch_id == batch_id:
        return Decision(Verdict.ALREADY_PUBLISHED, f"range job {batch_id} is in the log; an earlier try landed")
    if found.metadata == planned.metadata or not state.rules.range_job_compares_the_token:
        return Decision(Verdict.PUBLISH, "the token is as planned")
    if found.batch_id == batch_id_of(planned.metadata):
        why = f"range job {batch_id} was given up by orphan removal while it was under way"
        return Decision(Verdict.STALE, f"{why}; start it again", given_up=True)
    return Decision(Verdict.STALE, f"range job {found.batch_id} has been published since {batch_id} was planned")

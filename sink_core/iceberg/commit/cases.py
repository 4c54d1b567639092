"""The special cases of a commit that need nothing but the log: one for a finding that is resolved, one for deletes."""

from __future__ import annotations

from dataclasses import replace

from calve.sink_core.iceberg.commit.plan import CommitPlan, SpecialCase
from calve.sink_core.tables.history.resolving import resolution
from calve.sink_core.tables.history.shares import shares_of


class ResolveFinding(SpecialCase):
    """A table with a finding takes nothing but the range job that resolves it: its commit is the resolution."""

    def choose(self, plan: CommitPlan) -> CommitPlan:
        found = resolution(plan.view, plan.state, plan.finding.name) if plan.finding else None
        if found is None:
            return plan
        return replace(plan, finding=None, pending=found.events, events=found.events, stored_offset=found.stored_offset)


class ShareSnapshots(SpecialCase):
    """Batches with deletes have a snapshot each."""

    def build(self, plan: CommitPlan) -> CommitPlan:
        whole = plan.whole
        return replace(plan, shares=tuple(shares_of(whole.events, whole.stored_offset, whole.last_event_id)))

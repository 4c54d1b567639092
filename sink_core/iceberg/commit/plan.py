"""What one attempt commits to a table, and the protocol of whatever makes that more than an append.

A plan begins as all that the table lacks, in one snapshot. One after the other the special cases make of it what they
have to. First they choose among the events, and write nothing; then they write what the commit needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from calve.sink_core.finding import Finding
from calve.sink_core.iceberg.commit.view import TableView
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.shares import Events, Share
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What an attempt commits to a table as loaded, unless a `finding` stands. `conflicts` were lost before it.

    Of the `pending` events that it decides on `events` go in, and range jobs are `dropped` (by their ids) for good. The
    table then stores `stored_offset` (exclusive). `more`: others are pending behind that, for a commit of their own.
    `gone` are manifests of data files that leave besides, `kept` of what takes their place, `removed` the rows that go
    by this, by job. `shares` are the snapshots, where there are several.
    """

    table: Table
    view: TableView
    state: CommitState
    finding: Finding | None
    conflicts: int
    pending: Events
    events: Events
    stored_offset: int
    dropped: tuple[str, ...] = ()
    more: bool = False
    gone: tuple[ManifestRef, ...] = ()
    kept: tuple[ManifestRef, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict[str, int])
    shares: tuple[Share, ...] = ()

    @classmethod
    def of(cls, table: Table, view: TableView, state: CommitState, finding: Finding | None, conflicts: int) -> Self:
        """An append of all that the table lacks; of nothing, where there is a finding."""
        pending = () if finding else state.pending(view.table, view.uuid, view.stored_offset)
        return cls(table, view, state, finding, conflicts, pending, pending, state.limit)

    @property
    def whole(self) -> Share:
        """All of it, as one snapshot."""
        return Share(self.events, self.stored_offset, self.pending[-1].event.event_id)


Summarize = Callable[[CommitPlan, Share], Mapping[str, str]]
"""What a snapshot says of itself."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one `catalog.commit_table` call is given; id and summary are those of its last snapshot."""

    snapshot_id: int
    summary: Mapping[str, str]
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """A plan, and the attempt that is to carry it out or has `landed`."""

    plan: CommitPlan
    attempt: Attempt
    landed: bool = False


class SpecialCase(Protocol):
    """What makes a commit more than an append. Each sees the plan as those before it leave it."""

    def choose(self, plan: CommitPlan) -> CommitPlan:
        """The plan with the events that this case leaves in it. Writes nothing."""
        return plan

    def build(self, plan: CommitPlan) -> CommitPlan | Built | None:
        """The plan with what this case has written for it; None if the table must be loaded again."""
        return plan

"""Random histories of publishes, commits, roll backs, recreations and refills over the real decisions.

Kafka and the catalog are a list of events and a table of snapshots; what is planned, found, dropped and committed is
decided by the code that decides it for real. After every step no offset is in the head twice; at the end a refill and a
commit make it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.events import Event
from calve.sink_core.finding import Finding
from calve.sink_core.offset_sets import ranges_of
from calve.sink_core.offsets import NO_TOKEN, Position
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.range_jobs.job import RangePlan, decide
from calve.sink_core.sink.range_jobs.lost import losses, lost_offsets
from calve.sink_core.sink.range_jobs.missing import missing
from calve.sink_core.tables.history.findings import AncestryCut, compare
from calve.sink_core.tables.history.resolving import resolution, resolves
from calve.sink_core.tables.history.view import SnapshotView, TableView
from calve.sink_core.tables.log.range_parts import RangeRead
from calve.sink_core.tables.log.state import CommitState
from tests.unit.iceberg.commit.build import NOW, own, view
from tests.unit.tables.log.build import TABLE, TOPIC, complete, log, manifest, reported, written

OTHER = "air.other"


@dataclass
class World:
    """One table fed by batches of one offset each. `content` are the offsets that a snapshot holds."""

    events: list[Event] = field(default_factory=list[Event])
    rows: list[LedgerRow] = field(default_factory=list[LedgerRow])
    table: TableView = field(default_factory=lambda: view(head=None, tag=None, uuid="u0"))
    content: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    again: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    token: Position = NO_TOKEN
    plans: list[tuple[RangePlan, str]] = field(default_factory=list[tuple[RangePlan, str]])
    made: int = 0

    def __post_init__(self) -> None:
        self.events.append(replace(complete("boot", {TOPIC: (0,)}, kind="bootstrap", tables=()), totals={}))

    @property
    def state(self) -> CommitState:
        return log(*self.events)

    @property
    def held(self) -> tuple[int, ...]:
        return self.content[self.table.head] if self.table.head is not None else ()

    def number(self) -> int:
        self.made += 1
        return self.made

    def publish(self, number: int) -> None:
        """A batch; some come from a process whose file lacks the table, some were written for one that is gone."""
        offset, fed = len(self.rows), number % 4 > 0
        batch_id = f"b{offset}"
        if fed:
            self._write(batch_id, (offset,), "u0" if number == 7 else self.table.uuid)
        self.events.append(complete(batch_id, {TOPIC: (offset + 1,)}, tables=(TABLE if fed else OTHER,)))
        rows = {TABLE if fed else OTHER: 1}
        self.rows.append(LedgerRow(batch_id, TOPIC, 0, offset, offset + 1, 1, 0, 0, 0, 0, 1, 0, rows))

    def _write(self, batch_id: str, offsets: tuple[int, ...], uuid: str, plan: RangePlan | None = None) -> None:
        self.again[batch_id] = offsets
        event = written(batch_id, uuid=uuid, resolves=plan.resolves if plan else None)
        self.events.append(replace(event, manifests=(manifest(rows=len(offsets)),)))

    def finding(self, state: CommitState) -> Finding | None:
        found = compare(self.table, state, NOW)
        return found.finding if isinstance(found, AncestryCut) else found

    def commit(self, number: int) -> None:
        """A coordinator; every other one dies before it tells."""
        state = self.state
        finding = self.finding(state)
        new, stored = state.pending(TABLE, self.table.uuid, self.table.stored_offset), state.limit
        if finding is not None:
            found = resolution(self.table, state, finding.name)
            new, stored = (found.events, found.stored_offset) if found else ((), 0)
        if new:
            counts = {logged.event.batch_id: logged.event.rows for logged in new}
            ours = own(stored, new[-1].event.event_id, batches=tuple(counts), counts=counts)
            rows = tuple(offset for logged in new for offset in self.again[logged.event.batch_id])
            self._add(SnapshotView(self.number(), self.table.head, None, ours), (*self.held, *rows), tag=True)
            if number % 2:
                self.events.append(reported(stored, uuid=self.table.uuid))

    def _add(self, snapshot: SnapshotView, content: tuple[int, ...], *, tag: bool) -> None:
        snapshot = replace(snapshot, sequence_number=len(self.table.snapshots) + 1)
        self.content[snapshot.snapshot_id] = content
        snapshots = {**self.table.snapshots, snapshot.snapshot_id: snapshot}
        head = snapshot.snapshot_id
        self.table = replace(self.table, snapshots=snapshots, head=head, tag=head if tag else self.table.tag)

    def move_head(self, number: int) -> None:
        """Roll back, or forward again."""
        ids = sorted(self.table.snapshots)
        if ids:
            self.table = replace(self.table, head=ids[number % len(ids)])

    def cherry_pick(self, number: int) -> None:
        """What is picked must not be there yet: doubles by hand are not ours to find."""
        for source in list(self.table.snapshots.values())[number % 3 :]:
            parent = self.content.get(source.parent_id or 0, ())
            added = tuple(offset for offset in self.content[source.snapshot_id] if offset not in parent)
            if source.own and not set(added) & set(self.held) and source.parent_id != self.table.head:
                copy = SnapshotView(self.number(), self.table.head, source.snapshot_id, None)
                self._add(copy, (*self.held, *added), tag=False)
                return

    def append_foreign(self, _number: int) -> None:
        self._add(SnapshotView(self.number(), self.table.head, None, None), self.held, tag=False)

    def remove_tag(self, _number: int) -> None:
        self.table = replace(self.table, tag=None)

    def recreate(self, _number: int) -> None:
        self.table = view(head=None, tag=None, uuid=f"u{self.number()}")

    def plan(self, _number: int) -> None:
        """A range job is planned: for the finding if there is one, else for history."""
        state = self.state
        finding = self.finding(state)
        batch_id = f"r{self.number()}"
        if finding is None:
            lacking = missing(TABLE, self.rows, state, max_offsets=2)
            if lacking.batches:
                plan = RangePlan(batch_id, TABLE, self.token, ranges_of(lacking.offsets), lacking.batches, {})
                self.plans.append((plan, self.table.uuid))
        elif resolution(self.table, state, finding.name) is None:
            found = losses(self.table, state)
            names = resolves(self.table, state, finding.name, found.covers_offset)
            offsets = ranges_of(lost_offsets(found, self.rows, state))
            self.plans.append((RangePlan(batch_id, TABLE, self.token, offsets, 0, {}, names), self.table.uuid))

    def publish_job(self, number: int) -> None:
        """One of the jobs that were planned, perhaps long ago, for the table as it then was."""
        if not self.plans:
            return
        plan, uuid = self.plans.pop(number % len(self.plans))
        if decide(plan.batch_id, plan.token, self.token, self.state).verdict is not Verdict.PUBLISH:
            return
        offsets = tuple(offset for part in plan.ranges for offset in range(part.start, part.end))
        self._write(plan.batch_id, offsets, uuid, plan)
        ranges = tuple(RangeRead(*part.at, part.start, part.end, part.span) for part in plan.ranges)
        event = complete(plan.batch_id, {}, kind="range")
        self.events.append(replace(event, ranges=ranges, totals={"batches": plan.batches}))
        self.token = Position(self.token.offset + 1, plan.batch_id)

    def until_whole(self) -> Iterator[None]:
        """What an operator does at the end."""
        self.plans.clear()
        for _ in range(len(self.rows) + 4):
            for step in (self.commit, self.plan, self.publish_job, self.commit):
                step(0)
                yield


STEPS = (
    *("publish", "commit", "commit", "plan", "plan", "publish_job", "publish_job", "move_head", "move_head"),
    *("cherry_pick", "append_foreign", "remove_tag", "recreate"),
)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=3, max_size=16))
def test_whatever_happens_no_row_is_twice_and_a_refill_makes_the_table_whole(steps: list[tuple[str, int]]) -> None:
    world = World()
    for number in (1, 2, 4, 3):
        world.publish(number)
        world.commit(number)
    for name, number in steps:
        getattr(world, name)(number)
        assert len(set(world.held)) == len(world.held), name
    for _ in world.until_whole():
        assert len(set(world.held)) == len(world.held)
    assert world.finding(world.state) is None
    assert sorted(world.held) == list(range(len(world.rows)))

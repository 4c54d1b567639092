"""A trimmed log with its checkpoint says what the whole log says, about everything the protocol asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.control import checks
from calve.sink_core.control.events import BatchAbandoned, Event, Paused, Resolved, Resumed
from calve.sink_core.control.trim import first_kept
from calve.sink_core.offsets import NOWHERE, TopicPartition, offsets_to_dense
from calve.sink_core.sink.loop.needed import kept_for_tables
from calve.sink_core.tables.log.checkpoint import table_checkpoint_of
from calve.sink_core.tables.log.events import DataComplete, TableCheckpoint
from calve.sink_core.tables.log.range_parts import RangeRead, Resolves
from calve.sink_core.tables.log.state import CommitState
from tests.unit.tables.log.build import PIPELINE_ID, UUID, bound, complete, log, reported, started, written

TABLES = ("db.a", "db.b")
TOPICS = ("one", "two")
Step = tuple[str, int]


@dataclass
class Writer:
    """Writes a log as publishers, coordinators and people do; `stored` is what each table has."""

    events: list[Event] = field(default_factory=list[Event])
    stored: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    topics: tuple[str, ...] = TOPICS
    last: str = ""

    def write(self, event: Event) -> None:
        self.events.append(replace(event, written_at_ms=1000 + len(self.events)))

    def do(self, step: Step) -> None:
        """One step; the number says with what."""
        getattr(self, step[0])(step[1])

    def publish(self, number: int) -> None:
        batch_id, fed = f"b{len(self.events)}", [t for i, t in enumerate(TABLES) if number & (1 << i)]
        for topic in self.topics:
            for partition in range(1 + number % 3):
                at = TopicPartition(topic, partition)
                self.positions[at] = self.positions.get(at, 0) + number
        now = {at: p for at, p in self.positions.items() if at.topic in self.topics}
        through = {at: NOWHERE if (number + at.partition) % 4 == 0 else 10 * number + at.partition for at in now}
        for table in fed:
            self.write(written(batch_id, table))
        done = complete(batch_id, offsets_to_dense(now), predecessor=self.last, through_ms=offsets_to_dense(through))
        done = replace(done, tables=tuple(fed), instant_ms=10 * len(self.events))
        self.write(done if self.last else replace(done, kind="bootstrap"))
        self.last = batch_id

    def read_again(self, number: int) -> None:
        """A range job; every other one resolves something."""
        batch_id, table = f"r{len(self.events)}", TABLES[number % 2]
        if number % 4 < 2:
            names = Resolves(finding="f", tagged_snapshot_id=1, base_snapshot_id=None, covers_offset=0)
            self.write(written(batch_id, table, resolves=names))
        read = (RangeRead("one", 0, number, number + 1, number),)
        done = complete(batch_id, {}, kind="range", tables=(table,))
        self.write(replace(done, ranges=read, totals={"batches": 1}, instant_ms=10 * len(self.events)))

    def plan(self, number: int) -> None:
        """Of a batch: a range job's may be older than the last publish, and trimmed."""
        predecessor = self.last + ("+mark" if number % 2 else "")
        self.write(started(f"p{len(self.events)}", predecessor))

    def give_up(self, _number: int) -> None:
        for logged in log(*self.events).outstanding():
            self.write(BatchAbandoned(pipeline_id=PIPELINE_ID, batch_id=logged.event.batch_id))

    def commit(self, number: int) -> None:
        """A table takes everything in; every other time its coordinator dies before it tells."""
        table = TABLES[number % 2]
        self.stored[table] = len(self.events)
        if number % 4 < 2:
            self.write(reported(self.stored[table], table))

    def choose_topics(self, number: int) -> None:
        self.topics = (TOPICS, TOPICS[:1], TOPICS[1:])[number % 3]

    def pause(self, number: int) -> None:
        self.write(Paused(pipeline_id=PIPELINE_ID, by=f"user {number}", reason=f"reason {number}"))

    def resume(self, number: int) -> None:
        self.write(Resumed(pipeline_id=PIPELINE_ID, by=f"user {number}"))

    def resolve(self, _number: int) -> None:
        self.write(Resolved(pipeline_id=PIPELINE_ID, finding="f", subject="s", choice="c", by="ana"))


ANY = ("publish", "read_again", "plan", "give_up", "commit", "choose_topics", "pause", "resume", "resolve")
NUMBERS = st.integers(1, 9)
STEPS = st.lists(st.tuples(st.sampled_from(ANY), NUMBERS), max_size=25)
BETWEEN = st.lists(st.tuples(st.sampled_from([s for s in ANY if s != "publish"]), NUMBERS), max_size=4)


def trimmed(writer: Writer, between: Sequence[Step], below: int) -> tuple[int, TableCheckpoint]:
    """A trim: what it reads, what others write meanwhile, its checkpoint. Where the log then begins, by `below`."""
    state, stored = log(*writer.events), dict(writer.stored)
    first = first_kept(state, kept_for_tables(state, stored), first_young=below, older_than_s=0).offset
    by_tables = {table: {UUID: offset} for table, offset in stored.items() if offset}
    checkpoint = table_checkpoint_of(state, delete_below=first, stored=by_tables)
    for step in between:
        writer.do(step)
    writer.write(checkpoint)
    return first, checkpoint


def said(state: CommitState, stored: dict[str, int]) -> dict[str, Any]:
    """Everything the protocol asks of the log."""
    return {
        "bound": state.bound and state.bound.pipeline_id,
        "positions": state.positions(),
        "topic ids": state.last_publish and state.last_publish.topic_ids,
        "last": state.last_batch_id,
        "last batch": state.complete,
        "ever": state.partitions,
        "begins": state.begins,
        "published": state.published,
        "paused": state.paused and (state.paused.by, state.paused.reason, state.paused.written_at_ms),
        "resumed": state.resumed and (state.resumed.by, state.resumed.written_at_ms),
        "answered": state.answer,
        "instant": state.instant_ms,
        "read to": (state.next_offset, state.limit),
        "reported": state.reported,
        "tables": state.tables,
        "through": (state.through_ms, state.valid_through_ms(state.next_offset)),
        "outstanding": [logged.event.batch_id for logged in state.outstanding()],
        "pending": {t: state.pending(t, UUID, offset) for t, offset in stored.items()},
        "of others": {t: state.for_other_uuid(t, "new", offset) for t, offset in stored.items()},
        "range jobs": (list(state.range_jobs.values()), state.last_range_job_id),
        "unfed": {t: state.unfed_batches(t) for t in stored},
        "truncated": checks.truncated(state, "control"),
    }


def both(writer: Writer, first: int) -> tuple[CommitState, CommitState]:
    return log(*writer.events), log(*writer.events[first:], start=first)


def assert_agree(writer: Writer, first: int) -> None:
    whole, rest = both(writer, first)
    assert said(rest, writer.stored) == said(whole, writer.stored)
    assert_last_events_known(writer, first)


@given(steps=STEPS, between=BETWEEN, later=STEPS, below=st.integers(0, 60))
def test_a_trimmed_log_says_what_the_whole_one_says(
    steps: list[Step], between: list[Step], later: list[Step], below: int
) -> None:
    writer = Writer()
    writer.write(bound())
    for step in [("publish", 3), *steps]:
        writer.do(step)
    first, _ = trimmed(writer, between, below)
    assert_agree(writer, first)
    for step in later:
        writer.do(step)
    assert_agree(writer, first)


@given(steps=STEPS, between=BETWEEN, later=STEPS, below=st.integers(0, 60), again=st.integers(0, 90))
def test_a_log_trimmed_twice_says_what_the_whole_one_says(
    steps: list[Step], between: list[Step], later: list[Step], below: int, again: int
) -> None:
    """The second trim reads what the first one left."""
    writer = Writer()
    writer.write(bound())
    for step in [("publish", 3), *steps]:
        writer.do(step)
    first, _ = trimmed(writer, between, below)
    for step in later:
        writer.do(step)
    state = log(*writer.events[first:], start=first)
    second = first_kept(state, kept_for_tables(state, writer.stored), first_young=again, older_than_s=0).offset
    stored = {table: {UUID: offset} for table, offset in writer.stored.items() if offset}
    writer.write(table_checkpoint_of(state, delete_below=second, stored=stored))
    assert_agree(writer, max(first, second))


def assert_last_events_known(writer: Writer, first: int) -> None:
    """A table names the last event that it has: it is in the log, or a checkpoint has it, or both begin above it."""
    whole, rest = both(writer, first)
    for table, stored in writer.stored.items():
        taken = [logged.event.event_id for logged in whole.written.get(table, []) if logged.offset < stored]
        known = {logged.event.event_id for logged in rest.written.get(table, [])} | rest.last_events.get(table, set())
        assert not taken or stored <= first or taken[-1] in known


def test_a_checkpoint_overtaken_by_a_publish_stands_for_nothing() -> None:
    writer = Writer()
    writer.write(bound())
    for step in (("publish", 3), ("publish", 5), ("commit", 1), ("commit", 2)):
        writer.do(step)
    first, _ = trimmed(writer, [("publish", 7)], 99)
    state = log(*writer.events[first:], start=first)
    assert first > 0
    assert state.checkpoint is None
    finding = checks.truncated(state, "control")
    assert finding is not None
    assert finding.name == "control-topic-truncated"
    assert log(*writer.events).last_batch_id == next(
        e.batch_id for e in reversed(writer.events) if isinstance(e, DataComplete)
    )


def test_the_last_event_a_table_took_in_is_known_after_every_trim() -> None:
    """Also where a table has got nothing new between two trims, and where it has."""
    writer = Writer()
    writer.write(bound())
    starts, a, b = [0], 1, 2
    for fed in (a + b, a, b, b, a + b, a, b):
        for step in (("publish", fed), ("commit", 0), ("commit", 1), ("publish", b), ("commit", 0)):
            writer.do(step)
        state = log(*writer.events[starts[-1] :], start=starts[-1])
        first = first_kept(
            state, kept_for_tables(state, writer.stored), first_young=state.next_offset, older_than_s=0
        ).offset
        writer.write(table_checkpoint_of(state, delete_below=first, stored={}))
        assert first > starts[-1]
        assert first < writer.stored[TABLES[0]]
        starts.append(first)
        assert_last_events_known(writer, first)

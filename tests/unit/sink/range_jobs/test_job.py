"""A range job's token, tasks, events, and what retention or a missing setting refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.config.tables import Steps
from calve.sink_core.control.decision import Verdict
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offset_sets import ranges_of
from calve.sink_core.offsets import NO_TOKEN, OffsetRange, Position, TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.range_jobs.job import RangePlan, decide, deleted, events, tasks_of
from calve.sink_core.sink.range_jobs.missing import check_stated, missing
from calve.sink_core.tables.batch import TableOutput
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.range_parts import RangeRead, Resolves
from tests.codes import raises
from tests.unit.tables.log.build import TABLE, TOPIC, at, complete, log

JOB = "r9"
PLAN = RangePlan(JOB, TABLE, Position(3, "r8"), (OffsetRange(TOPIC, 0, 5, 20), OffsetRange(TOPIC, 0, 30, 40)), 2, {})


@pytest.mark.parametrize(
    ("planned", "found", "verdict", "given_up"),
    [
        (NO_TOKEN, NO_TOKEN, Verdict.PUBLISH, False),
        (Position(3, "r8"), Position(3, "r8"), Verdict.PUBLISH, False),
        (Position(3, "r8"), Position(4, "r9"), Verdict.ALREADY_PUBLISHED, False),
        (Position(3, "r8"), Position(4, "r9+mark"), Verdict.ALREADY_PUBLISHED, False),
        (Position(3, "r8"), Position(4, "r10"), Verdict.STALE, False),
        (NO_TOKEN, Position(1, "r1"), Verdict.STALE, False),
        (Position(3, "r8"), Position(3, "r8+mark"), Verdict.STALE, True),
        (NO_TOKEN, Position(0, "+mark"), Verdict.STALE, True),
        (Position(3, "r8+one"), Position(3, "r8+two"), Verdict.STALE, True),
        (Position(3, "r8+one"), NO_TOKEN, Verdict.STALE, False),
    ],
)
def test_a_job_is_published_under_the_token_it_was_planned_with(
    planned: Position, found: Position, verdict: Verdict, given_up: bool
) -> None:
    decision = decide(JOB, planned, found, log(complete("b1")))
    assert (decision.verdict, decision.given_up) == (verdict, given_up)


def test_a_job_in_the_log_was_published_whatever_the_token_says() -> None:
    state = log(complete("b1"), complete(JOB, {}, kind="range"), complete("r10", {}, kind="range"))
    assert decide(JOB, NO_TOKEN, Position(5, "r10"), state).verdict is Verdict.ALREADY_PUBLISHED


OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2)),
    st.sets(st.integers(0, 40), min_size=1).map(BitMap64),
)


@given(OFFSETS, st.integers(1, 6))
def test_tasks_cover_every_offset_once_and_read_a_partition_once(
    offsets: dict[TopicPartition, BitMap64], tasks: int
) -> None:
    made = tasks_of(ranges_of(offsets), tasks)
    read = [(part.at, offset) for task in made for part in task for offset in range(part.start, part.end)]
    assert sorted(read) == sorted((each, offset) for each, some in offsets.items() for offset in some)
    assert all(len({part.at for part in task}) == len(task) > 0 for task in made)


def test_neighbouring_ranges_become_one() -> None:
    assert ranges_of({at(0): BitMap64([1, 2, 3, 7])}) == (OffsetRange(TOPIC, 0, 1, 4), OffsetRange(TOPIC, 0, 7, 8))


def test_what_retention_took_is_named_to_the_offset() -> None:
    assert deleted(PLAN.ranges, {at(0): 10}) == (OffsetRange(TOPIC, 0, 5, 10),)
    assert deleted(PLAN.ranges, {at(0): 35}) == (OffsetRange(TOPIC, 0, 5, 20), OffsetRange(TOPIC, 0, 30, 35))
    assert deleted(PLAN.ranges, {at(0): 5}) == ()


def test_the_events_say_what_was_read_and_how_many_rows_each_range_gave() -> None:
    slices = [(5, 12, 7), (12, 20, 6), (30, 40, 10)]
    counts = [PartitionCounts(TOPIC, 0, a, b, records=n, written={TABLE: n}) for a, b, n in slices]
    (done,) = events(PLAN, TableOutput(TABLE, "u", 0), counts, "p")
    assert isinstance(done, DataComplete)
    assert done.ranges == (RangeRead(TOPIC, 0, 5, 20, 13), RangeRead(TOPIC, 0, 30, 40, 10))
    assert (done.kind, done.positions, done.tables, done.predecessor) == ("range", {}, (TABLE,), "r8")
    assert {name: done.totals[name] for name in ("records", "offsets", "batches")} == {
        "records": 23,
        "offsets": 25,
        "batches": 2,
    }


def test_a_job_that_resolves_something_says_so_without_a_row() -> None:
    names = Resolves(finding="tag-removed", tagged_snapshot_id=None, base_snapshot_id=1, covers_offset=4)
    assert len(events(replace(PLAN, ranges=(), resolves=names), TableOutput(TABLE, "u", 0), [], "p")) == 2


def row(batch_id: str, start: int, end: int, *tables: str) -> LedgerRow:
    return LedgerRow(batch_id, TOPIC, 0, start, end, end - start, 0, 0, 0, 0, 0, 0, dict.fromkeys(tables, end - start))


def test_history_is_what_neither_a_batch_nor_a_job_gave_the_table_in_whole_batches() -> None:
    rows = [row("b1", 0, 10), row("b2", 10, 20), row("b3", 20, 30, TABLE), row("b4", 30, 40)]
    done = replace(complete("r1", {}, kind="range"), ranges=(RangeRead(TOPIC, 0, 0, 10, 10),), totals={"batches": 1})
    state = log(complete("boot", kind="bootstrap"), *(complete(b, tables=()) for b in ("b1", "b2")), done)
    found = missing(TABLE, rows, state, max_offsets=10)
    assert ranges_of(found.offsets) == (OffsetRange(TOPIC, 0, 10, 20),)
    assert (found.batches, found.left) == (1, 1)
    assert missing(TABLE, rows, state, max_offsets=1).batches == 1
    assert missing("other", rows, state, max_offsets=100).batches == 4
    assert state.unfed_batches(TABLE) == 1


SETTINGS = TableSettings("db.new", "append", None, True, 1, Steps(), case_insensitive=False, owned=None)


def test_a_table_that_was_not_fed_last_must_state_its_history() -> None:
    published = log(complete("boot", kind="bootstrap", tables=()), complete("b1"))
    with raises(Code.HISTORY_UNSET, "db.new", 1):
        check_stated([SETTINGS], published)
    check_stated([replace(SETTINGS, history="none"), replace(SETTINGS, name=TABLE)], published)
    check_stated([SETTINGS], log(complete("boot", kind="bootstrap", tables=())))

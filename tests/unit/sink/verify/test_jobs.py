"""What a range job changes in the proof: batches it stands for, rows it must have."""

from __future__ import annotations

import pytest

from calve.sink_core.offset_sets import of_range
from calve.sink_core.sink.ledger.stored_offsets import Held
from calve.sink_core.sink.verify import jobs
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead
from calve.sink_core.tables.proof import Evidence
from tests.unit.sink.verify.hand_made import AT, DATA, kinds, row

ROWS = [row("b1", 0, 10), row("b2", 10, 20), row("b3", 20, 30)]


def job(batch_id: str, *ranges: tuple[int, int], resolves: bool = False) -> RangeJob:
    return RangeJob(batch_id, DATA, resolves, 1, tuple(RangeRead(*AT, a, b, b - a) for a, b in ranges))


@pytest.mark.parametrize(
    ("made", "held", "excused"),
    [
        ([job("r1", (10, 30), resolves=True)], {"b1", "r1"}, {"b2", "b3"}),
        ([job("r1", (10, 29), resolves=True)], {"b1", "r1"}, {"b2"}),
        ([job("r1", (10, 30), resolves=True)], {"b1"}, {"r1"}),
        ([job("r1", (10, 30))], {"b1", "b2", "b3"}, set()),
        ([job("h1", (0, 10)), job("r1", (0, 30), resolves=True)], {"r1"}, {"b1", "b2", "b3", "h1"}),
    ],
    ids=["refilled", "one offset short", "dropped", "history that is missing", "history refilled"],
)
def test_what_needs_no_snapshot(made: list[RangeJob], held: set[str], excused: set[str]) -> None:
    assert jobs.excused(made, held, ROWS) == excused


def test_a_job_s_rows_are_expected_and_one_without_rows_only_where_it_is_held() -> None:
    made = [job("r1", (0, 10), (20, 25)), job("r2", resolves=True), job("r3", resolves=True)]
    assert jobs.expected_rows(made, {"r2"}, dead_letters=False) == {"r1": 15, "r2": 0}


def letters(batch_id: str, *ranges: tuple[int, int, int]) -> RangeJob:
    read = tuple(RangeRead(*AT, *each) for each in ranges)
    return RangeJob(batch_id, DATA, False, 0, read, letters=True, topic_ids={AT.topic: "T"})


def test_of_dead_letters_a_table_has_what_was_moved_and_they_have_what_came_back() -> None:
    made = [letters("l1", (3, 5, 2), (7, 8, 0))]
    assert jobs.expected_rows(made, set(), dead_letters=False) == {"l1": 2}
    assert jobs.expected_rows(made, set(), dead_letters=True) == {"l1": 1}


def test_history_has_the_dead_letters_that_were_moved_later_and_no_earlier_ones() -> None:
    made = [letters("l1", (1, 2, 1)), job("h1", (0, 10)), letters("l2", (3, 5, 2)), letters("l3", (6, 7, 1))]
    assert [p.rows for p in jobs.ranges_read(made, (), (), {"l1", "l2"})] == [12]


@pytest.mark.parametrize(("end", "found"), [(10, []), (9, ["range-rows"])])
def test_history_has_as_many_rows_as_its_job_wrote(end: int, found: list[str]) -> None:
    evidence = Evidence()
    made = [job("h1", (0, 10)), job("r1", (10, 20), resolves=True), job("h2", (20, 30))]
    parts = jobs.ranges_read(made, pending={"h2"}, held=())
    jobs.compare(DATA, Held(seen={AT: of_range(0, end)}), parts, evidence)
    assert kinds(evidence) == found

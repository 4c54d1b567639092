"""Which offsets a replay takes: of batches that the table has, within what was asked for."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.offset_sets import of_range
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.range_jobs.selected import Wanted, check_same, moved_by, selected, whole_rows
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead
from tests.codes import raises
from tests.unit.sink.verify.hand_made import AT, DATA, row

ROWS = [
    row("a", 0, 10, planned_ms=100),
    row("b", 10, 20, planned_ms=200, dead=2),
    row("c", 20, 30, planned_ms=300, written={}),
    row("d", 30, 40, planned_ms=400, lost=10, records=0, written={DATA: 0}),
]
HISTORY = RangeJob("h", DATA, False, 1, (RangeRead(*AT, 20, 30, 10),))


def asked(start: int, end: int) -> OffsetRange:
    return OffsetRange(*AT, start, end)


def take(wanted: Wanted, *jobs: RangeJob, absent: dict[str, str] | None = None) -> BitMap64:
    return selected(DATA, ROWS, wanted, jobs, absent or {}).get(AT, BitMap64())


def test_times_are_half_open() -> None:
    assert take(Wanted(from_ms=100, to_ms=200)) == of_range(0, 10)
    assert take(Wanted(from_ms=101)) == of_range(10, 20)
    assert take(Wanted(to_ms=201)) == of_range(0, 20)


def test_times_and_ranges_together_take_what_lies_in_both() -> None:
    assert take(Wanted(from_ms=200, ranges=(asked(5, 15), asked(35, 50)))) == of_range(10, 15)


def test_what_never_fed_the_table_is_taken_only_if_its_history_was_read() -> None:
    assert take(Wanted(from_ms=0)) == of_range(0, 20)
    assert take(Wanted(from_ms=0), HISTORY) == of_range(0, 30)


@pytest.mark.parametrize(("start", "end"), [(15, 21), (30, 35), (100, 101)], ids=["not fed", "lost", "not published"])
def test_ranges_that_the_table_never_got_are_refused(start: int, end: int) -> None:
    with raises(Code.NOT_PUBLISHED):
        take(Wanted(ranges=(asked(start, end),)))


def test_batches_that_are_absent_refuse_what_touches_them() -> None:
    absent = {"b": "is published and not committed yet"}
    assert take(Wanted(ranges=(asked(0, 10),)), absent=absent) == of_range(0, 10)
    with raises(Code.NOT_HELD, "b"):
        take(Wanted(ranges=(asked(9, 11),)), absent=absent)


def test_offsets_that_two_topics_had_are_refused() -> None:
    former = row("z", 5, 8, former=True, topic_id="old")
    with raises(Code.TWO_TOPICS):
        selected(DATA, [*ROWS, former], Wanted(ranges=(asked(0, 10),)), (), {})
    assert selected(DATA, [*ROWS, former], Wanted(ranges=(asked(0, 5),)), (), {}) == {AT: of_range(0, 5)}


def test_ranges_of_whole_rows_must_give_as_many_rows_as_before() -> None:
    expected = whole_rows(DATA, [asked(0, 20), asked(12, 15), asked(20, 30)], ROWS, moved_by(()))
    assert expected == {asked(0, 20): 18}
    check_same(DATA, [RangeRead(*AT, 0, 20, 18), RangeRead(*AT, 12, 15, 1)], expected)
    with raises(Code.OTHER_ROWS, 17, 18):
        check_same(DATA, [RangeRead(*AT, 0, 20, 17)], expected)

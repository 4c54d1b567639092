from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.sink.ledger.rows import LedgerRow, digest, rows_of
from calve.sink_core.tables.proof import Evidence
from tests.codes import names
from tests.unit.sink.verify.hand_made import AT, DATA, fold, kinds, row


def check(rows: list[LedgerRow], begin: int, end: int) -> Evidence:
    evidence = Evidence()
    fold(rows, evidence).check({AT: begin}, {AT: end}, lambda: rows, evidence)
    return evidence


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(0, 1000), st.randoms())
def test_contiguous_rows_in_any_order_are_accepted(lengths: list[int], begin: int, order: random.Random) -> None:
    ends = [begin + sum(lengths[: i + 1]) for i in range(len(lengths))]
    rows = [row(f"b{i}", end - length, end) for i, (end, length) in enumerate(zip(ends, lengths, strict=True))]
    order.shuffle(rows)
    assert kinds(check(rows, begin, ends[-1] if ends else begin)) == []


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.data())
def test_any_row_left_out_or_put_in_twice_is_named(lengths: list[int], data: st.DataObject) -> None:
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    rows = [row(f"b{i}", end - length, end) for i, (end, length) in enumerate(zip(ends, lengths, strict=True))]
    chosen = data.draw(st.sampled_from(rows))
    left_out = check([r for r in rows if r is not chosen], 0, ends[-1])
    assert [(v.kind, v.ranges) for v in left_out.violations] == [("ledger-gap", (chosen.shown,))]
    twice = check([*rows, chosen], 0, ends[-1])
    assert [(v.kind, v.ranges) for v in twice.violations] == [("ledger-overlap", (chosen.shown,))]


def test_a_gap_names_the_range_and_the_batches_around_it() -> None:
    evidence = check([row("b1", 0, 100), row("b2", 100, 240), row("b4", 300, 400)], 0, 400)
    (violation,) = evidence.violations
    assert (violation.kind, violation.subject) == ("ledger-gap", "flights[3]")
    assert violation.ranges == ("flights[3] [240, 300)",)
    assert violation.batches == ("b2", "b4")


def test_an_overlap_names_both_batches() -> None:
    (violation,) = check([row("b1", 0, 100), row("b2", 80, 200)], 0, 200).violations
    assert violation.kind == "ledger-overlap"
    assert violation.ranges == ("flights[3] [80, 100)",)
    assert set(violation.batches) == {"b1", "b2"}


def test_rows_before_the_bootstrap_and_beyond_the_positions_are_named() -> None:
    (violation,) = check([row("b1", 40, 100), row("b2", 100, 130)], 50, 120).violations
    assert violation.kind == "ledger-beyond-positions"
    assert violation.ranges == ("flights[3] [40, 50)", "flights[3] [120, 130)")


def test_published_offsets_without_any_row_are_a_gap() -> None:
    (violation,) = check([], 0, 7).violations
    assert (violation.kind, violation.ranges) == ("ledger-gap", ("flights[3] [0, 7)",))


def test_a_partition_that_appeared_later_begins_at_its_first_row() -> None:
    rows, evidence = [row("b1", 500, 600)], Evidence()
    fold(rows, evidence).check({}, {AT: 600}, lambda: rows, evidence)
    assert kinds(evidence) == []


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"gaps": 3}, [10, 3, 13]),
        ({"written": {DATA: 9}}, [9]),
        ({"dead_lettered": 1}, [1]),
    ],
)
def test_a_row_that_does_not_add_up_is_named_with_its_numbers(changes: dict[str, object], numbers: list[int]) -> None:
    (violation,) = check([row("b1", 0, 10, **changes)], 0, 10).violations
    assert violation.kind == "ledger-row-sum"
    names(violation.message, *numbers)
    assert violation.ranges == ("flights[3] [0, 10)",)
    assert violation.batches == ("b1",)


def test_a_row_that_is_no_range_is_named() -> None:
    assert kinds(check([row("b1", 0, 5)._replace(start=9)], 0, 0)) == ["ledger-row-invalid"]


def test_sums_per_batch_run_over_all_its_rows() -> None:
    other = AT._replace(partition=4)
    ledger = fold([row("b1", 0, 10, dead=2), row("b1", 5, 8, at=other), row("b2", 10, 11)])
    sums = ledger.batches["b1"]
    assert (sums.rows, sums.offsets, sums.dead_lettered, sums.written) == (2, 13, 2, {DATA: 11})
    assert sums.ends == digest([(other, 8), (AT, 10)])


PLANNED = pa.array([1767225600123456], pa.timestamp("us", "UTC"))


def test_rows_are_read_from_arrow() -> None:
    made = row("b1", 0, 10, planned_ms=1767225600123)
    columns = {"start_offset": [0], "end_offset": [10], "planned_at": PLANNED}
    columns |= {
        name: [getattr(made, name)] for name in ("batch_id", "topic", "partition", "records", "gaps", "topic_id")
    }
    columns |= {name: [getattr(made, name)] for name in ("tombstones", "filtered", "dead_lettered", "value_bytes")}
    written = pa.array([[(DATA, 10)]], pa.map_(pa.string(), pa.int64()))
    batch = pa.RecordBatch.from_pydict({**columns, "written": written})
    assert list(rows_of([batch])) == [made]


def test_a_ledger_that_knows_of_no_losses_has_none() -> None:
    made = row("b1", 0, 10)
    columns = {
        name: [value] for name, value in made._asdict().items() if name not in ("start", "end", "written", "lost")
    }
    columns |= {"start_offset": [0], "end_offset": [10], "planned_at": pa.array([0], PLANNED.type)}
    written = pa.array([[(DATA, 10)]], pa.map_(pa.string(), pa.int64()))
    without = pa.RecordBatch.from_pydict({**columns, "written": written})
    unset = without.append_column("lost", pa.array([None], pa.int64()))
    assert list(rows_of([without, unset])) == [made, made]


def test_lost_offsets_are_accounted_for_and_no_others() -> None:
    lost = row("b1", 0, 10, records=0, value_bytes=0, written={DATA: 0}, lost=10)
    assert kinds(check([lost], 0, 10)) == []
    assert kinds(check([lost._replace(lost=9)], 0, 10)) == ["ledger-row-sum"]


def test_a_topic_that_was_created_again_is_accounted_for_apart() -> None:
    old, new = row("b1", 0, 10, topic_id="old", former=True), row("b2", 0, 4, topic_id="new")
    ledger, evidence = fold([old, new]), Evidence()
    ledger.check({}, {AT: 4, old.place: 10}, lambda: [old, new], evidence)
    assert kinds(evidence) == []
    assert ledger.under_one_name()[AT].to_array().tolist() == list(range(10))
    ledger.check({}, {AT: 4, old.place: 12}, lambda: [old, new], evidence)
    assert [(v.kind, v.subject) for v in evidence.violations] == [("ledger-gap", "flights of id old[3]")]

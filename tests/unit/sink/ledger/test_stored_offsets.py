from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from calve.sink_core.offset_sets import of_range
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.ledger.stored_offsets import (
    Held,
    compare,
    compare_dead_letters,
    compare_delivered,
    compare_restarted,
    held_by,
)
from calve.sink_core.tables.proof import Evidence
from tests.codes import names
from tests.unit.sink.verify.hand_made import AT, DATA, kinds, row

ROWS = [row("b1", 0, 100), row("b2", 100, 240)]
COVERED = {AT: of_range(0, 240)}
STRUCT = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def held(*offsets: int, at: TopicPartition = AT) -> Held:
    topics = pa.array([at.topic] * len(offsets), pa.string())
    columns = [topics, pa.array([at.partition] * len(offsets), pa.int32()), pa.array(offsets, pa.int64())]
    return held_by([pa.RecordBatch.from_arrays(columns, ["topic", "partition", "offset"])])


def compared(what: Held, rows: list[LedgerRow] | None = None) -> Evidence:
    evidence = Evidence()
    compare(DATA, what, rows or ROWS, lambda r: r.written[DATA], COVERED, evidence)
    return evidence


def test_each_offset_once_is_accepted() -> None:
    evidence = compared(held(*range(240)))
    assert kinds(evidence) == []
    assert evidence.facts["rows scanned"] == 240


def test_a_lost_row_is_named_by_its_offset_and_batch() -> None:
    (violation,) = compared(held(*range(120), *range(123, 240))).violations
    assert (violation.kind, violation.batches) == ("range-rows", ("b2",))
    assert violation.ranges == ("flights[3] [120, 123)",)
    names(violation.message, 137, 140)


def test_where_some_offsets_have_no_row_the_range_is_named() -> None:
    rows = [row("b1", 0, 100, dead=1), ROWS[1]]
    (violation,) = compared(held(*range(98), *range(100, 240)), rows).violations
    assert violation.ranges == ("flights[3] [0, 100)",)


def test_a_row_twice_is_named_within_a_file_and_across_files() -> None:
    what = held(*range(240), 50)
    what.take(*(pa.array(values) for values in (["flights"], [3], [101])))
    assert [(v.kind, v.ranges, v.batches) for v in compared(what).violations] == [
        ("offset-twice", ("flights[3] [50, 51)",), ("b1",)),
        ("offset-twice", ("flights[3] [101, 102)",), ("b2",)),
    ]


def test_an_offset_outside_of_the_ledger_is_named() -> None:
    (violation,) = compared(held(*range(240), 500)).violations
    assert (violation.kind, violation.ranges) == ("offset-outside", ("flights[3] [500, 501)",))


def test_what_another_pipeline_has_read_is_not_ours_to_prove_and_what_both_read_is_there_twice() -> None:
    evidence, others = Evidence(), {"calve.dev.departures": "cluster-1"}
    what = held(*range(240), 500, 100)
    compare(DATA, what, ROWS, lambda r: r.written[DATA], COVERED, evidence, others)
    assert [(v.kind, v.ranges) for v in evidence.violations] == [("offset-twice", ("flights[3] [100, 101)",))]
    assert evidence.not_checked[-1].subject == DATA
    names(evidence.not_checked[-1].why, 1, "calve.dev.departures")


def test_rows_of_other_writers_bound_the_claim_and_are_no_violation() -> None:
    column = pa.array([None, {"topic": "flights", "partition": 3, "offset": 0}], STRUCT)
    what = held_by([pa.RecordBatch.from_arrays([column], ["_kafka"])], struct="_kafka")
    assert (what.rows, what.foreign, what.seen) == (2, 1, {AT: BitMap64([0])})
    unproven = compared(what).not_checked[0]
    assert unproven.subject == DATA
    names(unproven.why, 1)


def test_a_record_in_the_table_and_among_the_dead_letters_is_named() -> None:
    evidence = Evidence()
    compare_dead_letters(DATA, held(1, 2, 3), held(3, 4), (), evidence)
    assert [(v.kind, v.ranges) for v in evidence.violations] == [("offset-in-both", ("flights[3] [3, 4)",))]


def test_records_are_held_against_what_kafka_delivers_where_it_still_holds_the_range() -> None:
    evidence = Evidence()
    for each in ROWS:
        compare_delivered({AT: of_range(60, 239)}, {AT: 60}, each, evidence)
    (violation,) = evidence.violations
    assert (violation.kind, violation.batches) == ("range-records", ("b2",))
    names(violation.message, 139)
    assert evidence.facts["offsets no longer in Kafka"] == 100


def test_records_that_the_ledger_calls_gaps_are_noticed_while_kafka_holds_them() -> None:
    """Nobody has read them: they are in no table."""
    evidence = Evidence()
    compare_delivered({AT: of_range(0, 100)}, {AT: 0}, row("b1", 0, 100, records=97, gaps=3), evidence)
    assert [(v.kind, v.ranges) for v in evidence.violations] == [("range-records", ("flights[3] [0, 100)",))]
    names(evidence.violations[0].message, 100)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 30)),
        max_size=60,
    ),
    st.integers(0, 60),
)
def test_offsets_are_told_apart_by_topic_and_partition(rows: list[tuple[str, int, int]], cut: int) -> None:
    what = Held()
    for part in (rows[:cut], rows[cut:]):
        topics, partitions, offsets = ([r[i] for r in part] for i in range(3))
        what.take(pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()))
    assert {(*at, o) for at, seen in what.seen.items() for o in seen} == set(rows)
    assert {(*at, o) for at, twice in what.twice.items() for o in twice} == {r for r in rows if rows.count(r) > 1}


def restarted(what: Held) -> list[str]:
    rows = [row("b1", 0, 10, topic_id="old", former=True), row("b2", 0, 4)]
    evidence = Evidence()
    compare_restarted(DATA, what, AT, rows, lambda r: r.written[DATA], evidence)
    return kinds(evidence)


def test_a_topic_that_was_created_again_has_its_first_offsets_twice_and_no_others() -> None:
    assert restarted(held(*range(10), *range(4))) == []
    assert restarted(held(*range(10), *range(3))) == ["range-rows"]
    assert restarted(held(*range(10), *range(3), 7)) == ["offset-twice"]


def test_dead_letters_of_a_topic_that_was_created_again_tell_nothing() -> None:
    evidence = Evidence()
    compare_dead_letters(DATA, held(1, 2, 3), held(3, 4), {AT}, evidence)
    assert kinds(evidence) == []

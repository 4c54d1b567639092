from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from calve.sink_core.iceberg.verify.snapshots import compare_total
from calve.sink_core.sink.resolve.rebuild import BEFORE
from calve.sink_core.tables.history.contents import compare, given_up
from calve.sink_core.tables.history.view import SnapshotView, TableView
from calve.sink_core.tables.proof import Evidence
from tests.codes import names
from tests.unit.sink.verify.hand_made import DATA, kinds, own, table_view

PUBLISHED_AT = {"b1": 3, "b2": 8, "b3": 12}
EXPECTED = {"b1": 10, "b2": 20, "b3": 5}


def compared(view: TableView, *, pending: tuple[str, ...] = (), whole: bool = True) -> Evidence:
    evidence = Evidence()
    compare(view, EXPECTED, PUBLISHED_AT, pending, evidence, whole=whole)
    return evidence


def test_each_batch_in_one_snapshot_with_its_rows() -> None:
    view = table_view((10, own(9, {"b1": 10, "b2": 20})), (11, None), (12, own(14, {"b3": 5})))
    evidence = compared(view)
    assert kinds(evidence) == []
    assert evidence.uncommitted == {DATA: 0}


def test_a_batch_in_two_snapshots_is_named_with_both() -> None:
    view = table_view((10, own(9, {"b1": 10, "b2": 20})), (12, own(14, {"b3": 5, "b2": 20})))
    (violation,) = compared(view).violations
    assert (violation.kind, violation.batches) == ("batch-twice", ("b2",))
    names(violation.message, 10, 12)


def test_other_counts_than_published_are_named_with_both() -> None:
    (violation,) = compared(table_view((10, own(14, {**EXPECTED, "b2": 19})))).violations
    assert violation.kind == "batch-rows"
    names(violation.message, 19, 10, 20)


def test_fewer_rows_than_published_are_no_match() -> None:
    evidence = compared(table_view((10, own(14, {**EXPECTED, "b3": 4}))))
    assert [(v.kind, v.batches) for v in evidence.violations] == [("batch-rows", ("b3",))]


def test_a_batch_in_no_snapshot_is_a_violation_unless_the_table_is_yet_to_take_it_in() -> None:
    view = table_view((10, own(9, {"b1": 10, "b2": 20})))
    assert [(v.kind, v.batches) for v in compared(view).violations] == [("batch-missing", ("b3",))]
    waiting = compared(view, pending=("b3",))
    assert kinds(waiting) == []
    assert waiting.uncommitted == {DATA: 1}


def test_what_nobody_published_for_the_table_is_named() -> None:
    view = table_view((10, own(14, {**EXPECTED, "b7": 1})))
    assert [(v.kind, v.batches) for v in compared(view).violations] == [("batch-unknown", ("b7",))]


def test_batches_of_expired_snapshots_are_stated_as_not_checked() -> None:
    evidence = compared(table_view((11, own(9, {"b2": 20})), (12, own(14, {"b3": 5})), expired=True), whole=False)
    assert kinds(evidence) == []
    [unproven] = evidence.not_checked
    assert unproven.subject == DATA
    names(unproven.why, 1)


def test_expiry_does_not_excuse_a_batch_above_the_oldest_snapshot_left() -> None:
    evidence = compared(table_view((11, own(9, {"b1": 10, "b2": 20})), (12, own(14, {})), expired=True), whole=False)
    assert [(v.kind, v.batches) for v in evidence.violations] == [("batch-missing", ("b3",))]


def test_a_cherry_picked_copy_holds_what_its_source_says() -> None:
    source, copy = SnapshotView(10, None, None, own(14, EXPECTED)), SnapshotView(12, 11, 10, None)
    views = {10: source, 11: SnapshotView(11, None, None, None), 12: copy}
    assert kinds(compared(TableView(DATA, "u", 12, 10, views))) == []


def test_what_an_answer_gave_up_is_stated_and_no_violation() -> None:
    accepted = replace(own(9, {}), given_up=((5, 9),))
    evidence = compared(
        table_view((10, own(4, {"b1": 10})), (12, accepted), (13, replace(own(14, {"b3": 5}), given_up=((5, 9),))))
    )
    assert kinds(evidence) == []
    [unproven] = evidence.not_checked
    assert unproven.subject == DATA
    names(unproven.why, 1, 20)


def test_giving_up_excuses_no_other_batch() -> None:
    accepted = replace(own(14, {"b1": 10}), given_up=((5, 9),))
    assert [v.batches for v in compared(table_view((12, accepted))).violations] == [("b3",)]


def test_of_trimmed_batches_those_are_given_up_that_the_table_lacks() -> None:
    view = table_view((12, replace(own(14, {"b1": 10}), given_up=((0, 9),))))
    assert given_up(view, ["b1", "trimmed"], {"b1": 3}) == {"trimmed"}
    assert given_up(table_view((12, own(14, {"b1": 10}))), ["trimmed"], {}) == set()
    rebuilt = table_view((12, replace(own(14, {"b1": 10}), given_up=BEFORE)))
    assert given_up(rebuilt, ["trimmed", "b2"], {"b2": 0}) == {"trimmed"}


def metadata(*snapshots: tuple[int, Operation, int]) -> TableMetadata:
    """Snapshots by id, each with the total of rows that it says; the last is the head."""
    made = [
        Snapshot.model_validate(
            {"snapshot-id": number, "sequence-number": number, "manifest-list": "l.avro"}
        ).model_copy(update={"summary": Summary(operation, **{"total-records": str(total)})})
        for number, operation, total in snapshots
    ]
    empty = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t")
    head = SnapshotRef(snapshot_id=snapshots[-1][0], snapshot_ref_type=SnapshotRefType.BRANCH)
    return empty.model_copy(update={"snapshots": made, "refs": {"main": head}})


def table_of(snapshots: TableMetadata) -> Table:
    return Table(("t",), snapshots, "", load_file_io({}, "file:///t"), NoopCatalog("none"))


def total(rows: int, view: TableView, operation: Operation = Operation.REPLACE) -> Evidence:
    """The proof of the total, where a rewrite came last and left so many rows."""
    evidence = Evidence()
    snapshots = metadata((10, Operation.APPEND, 35), (11, operation, rows))
    compare_total(table_of(snapshots), view, evidence, whole=True)
    return evidence


REWRITTEN = table_view((10, own(14, EXPECTED)), (11, None))


@pytest.mark.parametrize("rows", [34, 36], ids=["lost one", "doubled one"])
def test_a_rewrite_that_lost_or_doubled_rows_is_named(rows: int) -> None:
    assert kinds(total(35, REWRITTEN)) == []
    evidence = total(rows, REWRITTEN)
    assert kinds(evidence) == ["table-total"]
    names(evidence.violations[0].message, rows, 35)


def test_rows_of_other_writers_bound_the_claim_about_the_total() -> None:
    evidence = total(36, REWRITTEN, Operation.APPEND)
    assert kinds(evidence) == []
    [unproven] = evidence.not_checked
    assert unproven.subject == DATA
    names(unproven.why, 1, 11)


def test_rows_that_range_jobs_took_the_place_of_are_not_in_the_total() -> None:
    replaced = replace(own(16, {"r1": 5}), replaced={"r1": 4})
    view = table_view((10, own(14, EXPECTED)), (11, replaced))
    assert kinds(total(36, view)) == []
    assert kinds(total(40, view)) == ["table-total"]

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from calve.sink_core.sink.resolve.accounts import Accounts, disagreement, fold
from calve.sink_core.tables.history.view import TableView
from tests.codes import names
from tests.unit.iceberg.commit.build import own, snapshot, view
from tests.unit.tables.log.build import TABLE, TOPIC, at

DEAD, LEDGER = "dead", "ledger"


def row(batch_id: str, start: int, end: int, minute: int, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "batch_id": batch_id,
        "planned_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute),
        "topic": TOPIC,
        "topic_id": "id-1",
        "partition": 0,
        "start_offset": start,
        "end_offset": end,
        "dead_lettered": 0,
        "written": [(TABLE, end - start)],
    }
    return values | changes


def accounts(*batches: str) -> Accounts:
    return Accounts(batches={batch_id: {TABLE} for batch_id in batches})


def views(table: TableView, ledger: TableView) -> dict[str, TableView]:
    return {TABLE: table, LEDGER: ledger}


def test_the_ledger_says_where_partitions_are_and_which_tables_got_rows() -> None:
    rows = [row("b2", 15, 20, 1, dead_lettered=1, written=[(TABLE, 0)]), row("b1", 5, 15, 0)]
    folded = fold(rows, DEAD)
    assert (folded.begins, folded.ends) == ({at(0): 5}, {at(0): 20})
    assert folded.batches == {"b1": {TABLE}, "b2": {DEAD}}


def test_of_a_topic_that_was_created_again_the_last_rows_count() -> None:
    folded = fold([row("b1", 0, 50, 0), row("b2", 0, 0, 1, topic_id="id-2"), row("b3", 0, 7, 2, topic_id="id-2")], DEAD)
    assert (folded.topic_ids, folded.ends) == ({TOPIC: "id-2"}, {at(0): 7})


def test_tables_that_have_what_the_ledger_has_agree() -> None:
    table = view(snapshot(1, None, own(4, batches=("b1", "b2"))), head=1, tag=1)
    ledger = view(snapshot(1, None, own(2, batches=("b1",))), snapshot(2, 1, own(4, batches=("b2",))), head=2, tag=2)
    assert disagreement(accounts("b1", "b2"), views(table, ledger), LEDGER) == ""


def test_a_table_behind_the_ledger_is_named_with_the_batch() -> None:
    table = view(snapshot(1, None, own(2, batches=("b1",))), head=1, tag=1)
    ledger = view(snapshot(1, None, own(4, batches=("b1", "b2"))), head=1, tag=1)
    said = disagreement(accounts("b1", "b2"), views(table, ledger), LEDGER)
    names(said, TABLE, "b2")


def test_a_table_that_never_got_anything_is_behind() -> None:
    ledger = view(snapshot(1, None, own(4, batches=("b1",))), head=1, tag=1)
    names(disagreement(accounts("b1"), views(view(head=None, tag=None), ledger), LEDGER), TABLE, "b1")


def test_a_table_ahead_of_the_ledger_is_named_with_the_batch() -> None:
    table = view(snapshot(1, None, own(4, batches=("b1", "b2"))), head=1, tag=1)
    ledger = view(snapshot(1, None, own(2, batches=("b1",))), head=1, tag=1)
    said = disagreement(accounts("b1"), views(table, ledger), LEDGER)
    names(said, TABLE, "b2")


def test_of_expired_snapshots_the_control_offset_tells() -> None:
    table = view(snapshot(2, 1, own(4, batches=("b2",))), head=2, tag=2)
    ledger = view(snapshot(2, 1, own(4, batches=("b2",))), head=2, tag=2)
    assert disagreement(accounts("b1", "b2"), views(table, ledger), LEDGER) == ""
    behind = view(snapshot(2, 1, own(3, batches=())), head=2, tag=2)
    names(disagreement(accounts("b1"), views(behind, ledger), LEDGER), TABLE)


def test_offsets_of_another_control_topic_tell_nothing() -> None:
    table = view(snapshot(1, None, own(9, batches=(), control_topic_id="topic-2")), head=1, tag=1)
    ledger = view(
        snapshot(1, None, own(4, batches=("b1",))),
        snapshot(2, 1, own(9, batches=(), control_topic_id="topic-2")),
        head=2,
        tag=2,
    )
    names(disagreement(accounts("b1"), views(table, ledger), LEDGER), TABLE, "b1")


def test_a_table_that_is_not_there_and_got_rows_is_named() -> None:
    ledger = view(snapshot(1, None, own(2, batches=("b1",))), head=1, tag=1)
    said = disagreement(accounts("b1"), {LEDGER: ledger}, LEDGER, dropped=[TABLE])
    names(said, TABLE, "b1")
    assert disagreement(Accounts(batches={"b1": set()}), {LEDGER: ledger}, LEDGER, dropped=[TABLE]) == ""

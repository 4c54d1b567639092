"""What a snapshot of ours promises, and which events share one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve.sink_core.control.events import Logged
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.shares import Share, record_of_snapshot, shares_of
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from tests.unit.iceberg.commit.build import NOW, own, snapshot, view
from tests.unit.tables.log.build import complete, log, manifest, through, written

EMPTY = view(head=None, tag=None)
PROMISED = view(snapshot(1, ours=own(1, valid_through_ms=300)), head=1, tag=1)
BOOT = complete("boot", kind="bootstrap")


def elsewhere(batch_id: str, through_ms: int) -> DataComplete:
    return replace(through(batch_id, through_ms), tables=("db.other",))


def job(batch_id: str, batches: int) -> DataComplete:
    return replace(complete(batch_id, {}, kind="range"), totals={"batches": batches})


def promised(*events: DataComplete, stored: int, table: TableView = EMPTY, from_now: bool = False) -> int | None:
    made = record_of_snapshot(
        (),
        stored_offset=stored,
        last_event_id="",
        given_up=(),
        view=table,
        state=log(BOOT, *events),
        now=NOW,
        from_now=from_now,
    )
    return made.valid_through_ms


@pytest.mark.parametrize(
    ("events", "stored", "wanted"),
    [
        ((through("b1", 500),), 2, 500),
        ((elsewhere("b1", 500), through("b2", 700)), 3, None),
        ((elsewhere("b1", 500), through("b2", 700), job("r1", 1)), 4, 700),
        ((elsewhere("b1", 500), elsewhere("b2", 600), through("b3", 700), job("r1", 1)), 5, None),
    ],
)
def test_a_table_is_valid_through_once_it_has_what_was_published_without_it(
    events: tuple[DataComplete, ...], stored: int, wanted: int | None
) -> None:
    assert promised(*events, stored=stored) == wanted


def test_a_range_job_counts_once_the_table_has_taken_it_in() -> None:
    events = elsewhere("b1", 500), through("b2", 700), job("r1", 1)
    assert promised(*events, stored=3) is None


def test_what_was_promised_stays_while_a_host_with_an_older_file_leaves_the_table_out() -> None:
    events = through("b1", 300), elsewhere("b2", 500), through("b3", 700)
    assert promised(*events, stored=4, table=PROMISED) == 300


def test_a_table_that_takes_in_what_comes_from_now_on_lacks_nothing() -> None:
    assert promised(elsewhere("b1", 500), through("b2", 700), stored=3, from_now=True) == 700


def test_what_was_promised_stays_where_the_log_of_a_rebuild_knows_less() -> None:
    assert promised(through("b1", 200), stored=2, table=PROMISED) == 300


ROWS, KEYS = manifest("rows.avro"), manifest("keys.avro", content=1)


def event(offset: int, *manifests: ManifestRef) -> Logged[DataWritten]:
    return Logged(offset, replace(written(f"b{offset}"), manifests=manifests))


def test_batches_of_rows_share_a_snapshot() -> None:
    events = [event(2, ROWS), event(5), event(8, ROWS)]
    assert shares_of(events, 10, "last") == [Share(events, 10, "last")]


def test_a_batch_with_deletes_begins_a_snapshot() -> None:
    """In one with the batch before it they would not be for that one's rows, which would stay."""
    first, second, third = event(2, ROWS), event(5, ROWS, KEYS), event(8, ROWS)
    assert shares_of([first, second, third], 10, "last") == [
        Share([first], 5, first.event.event_id),
        Share([second, third], 10, "last"),
    ]


def test_each_of_several_batches_with_deletes_is_a_snapshot_of_its_own() -> None:
    """Each stores no more than it holds: of a table that is rolled back to it what comes later is still to come."""
    events = [event(2, KEYS), event(5, KEYS), event(8, KEYS)]
    found = shares_of(events, 10, "last")
    assert [(share.events, share.stored_offset) for share in found] == [
        ([one], stored) for one, stored in zip(events, (5, 8, 10), strict=True)
    ]

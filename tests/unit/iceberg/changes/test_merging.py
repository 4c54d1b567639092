"""What can be merged, and into what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, TimeType, UUIDType

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.changes import merging
from calve.sink_core.iceberg.changes.merging import Part, check_known, check_mergeable, first_part
from calve.sink_core.iceberg.commit.parallel import LeavingMerges, NeedsCaller
from calve.sink_core.tables.batch import ManifestRef, ToMerge
from calve.sink_core.tables.log.events import DataWritten
from tests.codes import raises
from tests.unit.tables.log.build import manifest, written

ROWS, KEYS = manifest("rows"), manifest("keys", content=1)
CHANGES, APPENDED, NOTHING = (ROWS, KEYS), (ROWS,), ()
BY_ID, BY_BOTH, ORDERED, KEEPS = ToMerge((1,)), ToMerge((1, 2)), ToMerge((1,), order=3), ToMerge((1,), keeps_old=True)

Batch = tuple[tuple[ManifestRef, ...], ToMerge | None]


def events(*batches: Batch) -> list[Logged[DataWritten]]:
    return [
        Logged(at, replace(written(str(at)), manifests=manifests, to_merge=to_merge))
        for at, (manifests, to_merge) in enumerate(batches)
    ]


@pytest.mark.parametrize(
    ("batches", "number", "merges"),
    [
        ([(CHANGES, None)], 1, True),
        ([((KEYS,), None), (CHANGES, None)], 2, True),
        # All of its changes were late: it is in the table when the others are.
        ([(NOTHING, None), (CHANGES, BY_ID), (NOTHING, ORDERED)], 3, True),
        ([(NOTHING, None)], 1, False),
        ([], 0, False),
        # Published when records were appended, or by a range job.
        ([(APPENDED, None), (CHANGES, None)], 1, False),
        ([(CHANGES, None), (APPENDED, None)], 1, True),
        # The file named another key, or order, when the later ones were written.
        ([(CHANGES, BY_ID), (CHANGES, BY_ID), (NOTHING, None), (CHANGES, BY_BOTH), (CHANGES, BY_ID)], 3, True),
        ([(CHANGES, None), (CHANGES, ORDERED)], 1, True),
    ],
)
def test_changes_that_were_written_alike_are_merged_at_once(batches: list[Batch], number: int, merges: bool) -> None:
    given = events(*batches)
    assert first_part(given, merged=True) == Part(given[:number], merges=merges)


@pytest.mark.parametrize(
    ("sizes", "number"),
    [
        ([6, 4, 1], 2),
        ([6, 5], 1),
        # One batch is taken whatever it has, and what brings nothing with it.
        ([11, 0, 1], 2),
        ([0, 11, 1], 2),
        ([1, 1, 1, 1], 3),
        ([1, 0, 1, 0, 1, 0], 6),
    ],
)
def test_a_merge_takes_so_many_batches_and_bytes(
    sizes: list[int], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MOST_BYTES", 10)
    monkeypatch.setattr(merging, "MOST_BATCHES", 3)
    given = events(*(((replace(KEYS, data_bytes=size),) if size else NOTHING, None) for size in sizes))
    assert first_part(given, merged=True) == Part(given[:number], merges=True)


@pytest.mark.parametrize(
    ("batches", "number", "merges"),
    [
        ([(APPENDED, None), (CHANGES, None), (CHANGES, BY_ID), (CHANGES, BY_BOTH)], 4, False),
        # Not held against the table: a late change among them would be put over a newer one.
        ([(CHANGES, BY_ID), (CHANGES, ORDERED)], 1, False),
        ([(CHANGES, ORDERED), (CHANGES, ORDERED), (CHANGES, BY_ID)], 2, True),
        ([(CHANGES, KEEPS), (CHANGES, None)], 1, True),
    ],
)
def test_some_changes_are_merged_whatever_the_file_says(batches: list[Batch], number: int, merges: bool) -> None:
    given = events(*batches)
    assert first_part(given, merged=False) == Part(given[:number], merges=merges)


@pytest.mark.parametrize(
    ("batches", "merged"),
    [
        ([(CHANGES, None)], True),
        ([(APPENDED, None), (CHANGES, None)], True),
        ([(CHANGES, None), (CHANGES, ORDERED)], False),
    ],
)
def test_a_table_with_anything_to_be_merged_is_left_to_who_has_spark(batches: list[Batch], merged: bool) -> None:
    with pytest.raises(NeedsCaller):
        LeavingMerges(frozenset({"t"} if merged else ())).first_part("t", events(*batches))


@pytest.mark.parametrize(("batches", "merged"), [([(APPENDED, None)], True), ([(CHANGES, None)], False), ([], True)])
def test_what_is_not_to_be_merged_needs_no_spark(batches: list[Batch], merged: bool) -> None:
    given = events(*batches)
    assert LeavingMerges(frozenset({"t"} if merged else ())).first_part("t", given) == Part(given, merges=False)


def test_a_column_that_was_dropped_stops_what_is_to_be_merged_by_it() -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(3, "lsn", LongType()))
    check_known(ORDERED, schema, table="db.t")
    with raises(Code.MERGE_COLUMN_GONE, "id", 2):
        check_known(BY_BOTH, schema, table="db.t")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (TimeType(), ["v", "time"]),
        (ListType(3, UUIDType(), element_required=False), ["v.element", "uuid"]),
    ],
)
def test_columns_that_spark_has_otherwise_are_refused(kind: TimeType | ListType, named: list[str]) -> None:
    key = NestedField(1, "id", LongType(), required=True)
    check_mergeable(Schema(key, NestedField(2, "v", StringType())), table="db.t")
    with raises(Code.MERGE_TYPE, "db.t", *named):
        check_mergeable(Schema(key, NestedField(2, "v", kind)), table="db.t")

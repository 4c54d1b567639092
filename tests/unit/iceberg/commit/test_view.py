"""A loaded table as snapshots, head and tag, and what it says it has."""

from __future__ import annotations

from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from calve.sink_core.iceberg.commit.view import view_of
from calve.sink_core.tables.history.record import to_summary
from calve.sink_core.tables.history.view import TableView
from tests.unit.iceberg.commit.build import KEYS, own, snapshot, view

TAG = "calve-flights"


def metadata(snapshots: list[dict[str, Any]], refs: dict[str, tuple[int, str]]) -> TableMetadata:
    empty = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake/flights")
    raw = empty.model_dump(by_alias=True, mode="json")
    raw["snapshots"] = [
        {"timestamp-ms": raw["last-updated-ms"], "manifest-list": "l.avro", "schema-id": 0, **s} for s in snapshots
    ]
    raw["last-sequence-number"] = len(snapshots)
    raw["refs"] = {name: {"snapshot-id": at, "type": kind} for name, (at, kind) in refs.items()}
    raw["current-snapshot-id"] = refs["main"][0] if "main" in refs else None
    return TableMetadataUtil.parse_obj(raw)


def view_on(snapshots: list[dict[str, Any]], refs: dict[str, tuple[int, str]]) -> TableView:
    return view_of(metadata(snapshots, refs), table="air.flights", tag=TAG, keys=KEYS)


def raw(snapshot_id: int, parent: int | None = None, **summary: str) -> dict[str, Any]:
    values = {"snapshot-id": snapshot_id, "sequence-number": snapshot_id, "summary": {"operation": "append", **summary}}
    return values if parent is None else values | {"parent-snapshot-id": parent}


def test_a_table_that_nobody_has_written_to_has_no_head_and_nothing_stored() -> None:
    seen = view_on([], {})
    assert (seen.head, seen.tag, seen.stored_offset, list(seen.ancestors())) == (None, None, 0, [])


def test_a_loaded_table_shows_its_head_its_tag_and_what_ours_among_its_snapshots_say() -> None:
    ours = own(42, valid_through_ms=9)
    snapshots = [raw(1), raw(2, 1, **to_summary(KEYS, ours)), raw(3, 2, **{"source-snapshot-id": "2"})]
    seen = view_on(snapshots, {"main": (3, "branch"), TAG: (2, "tag"), "other": (1, "tag")})
    assert (seen.head, seen.tag, seen.stored_offset) == (3, 2, 42)
    assert [s and s.snapshot_id for s in seen.ancestors()] == [3, 2, 1]
    assert seen.snapshots[2].own == ours
    assert seen.snapshots[3].source_id == 2
    assert seen.snapshots[1].own is None


def test_a_table_is_read_on_the_branch_asked_for() -> None:
    seen = view_of(
        metadata([raw(1), raw(2, 1)], {"main": (1, "branch"), "audit": (2, "branch")}),
        table="air.flights",
        tag=TAG,
        keys=KEYS,
        branch="audit",
    )
    assert seen.head == 2


def test_ancestry_ends_with_a_gap_where_the_parent_was_expired() -> None:
    assert [s and s.snapshot_id for s in view(snapshot(3, 2), head=3, tag=None).ancestors()] == [3, None]


def test_what_is_stored_is_what_the_tag_says_though_the_branch_was_rolled_back() -> None:
    seen = view(snapshot(1, None, own(10)), snapshot(2, 1, own(20)), head=1, tag=2)
    assert seen.stored_offset == 20


def test_what_is_stored_is_what_the_head_has_though_the_tag_was_moved_to_an_older_snapshot() -> None:
    seen = view(snapshot(1, None, own(10)), snapshot(2, 1, own(20)), snapshot(3, 2), head=3, tag=1)
    assert seen.stored_offset == 20


def test_offsets_of_a_control_topic_that_was_rebuilt_since_do_not_count() -> None:
    before, after = own(1000, control_topic_id="topic-0"), own(5)
    rolled_back = view(snapshot(1, None, before), snapshot(2, 1, after), head=1, tag=2)
    assert rolled_back.stored_offset == 5


def test_neither_do_they_where_the_tag_was_removed_as_well() -> None:
    before, after = own(1000, control_topic_id="topic-0"), own(5)
    rolled_back = view(snapshot(1, None, before), snapshot(2, 1, after), head=1, tag=None)
    assert rolled_back.stored_offset == 0
    assert rolled_back.newest == snapshot(2, 1, after)


def test_a_second_look_reads_only_the_snapshots_that_are_new_or_other_objects() -> None:
    refs = {"main": (2, "branch")}
    first = metadata([raw(1, **to_summary(KEYS, own(1))), raw(2, 1, **to_summary(KEYS, own(2)))], refs)
    edited = metadata([raw(1), raw(2, 1, **to_summary(KEYS, own(5))), raw(3, 2)], {"main": (3, "branch")})
    mixed = edited.model_copy(
        update={"table_uuid": first.table_uuid, "snapshots": [*first.snapshots[:1], *edited.snapshots[1:]]}
    )
    before, after = (view_of(each, table="air.flights", tag=TAG, keys=KEYS) for each in (first, mixed))
    assert after.snapshots[1] is before.snapshots[1]
    assert (after.snapshots[2].own, after.snapshots[3].own) == (own(5), None)
    expired = mixed.model_copy(update={"snapshots": mixed.snapshots[1:]})
    assert list(view_of(expired, table="air.flights", tag=TAG, keys=KEYS).snapshots) == [2, 3]

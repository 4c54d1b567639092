"""Whose snapshots and files may be removed."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from calve.sink_core.iceberg.create.tables import CREATED_BY
from calve.sink_core.iceberg.maintenance.owned import why_files_stay, why_not_owned
from tests.unit.iceberg.maintenance.build import loaded


def table(location: str = "file:///lake/db/events", *tags: str, **properties: str) -> Table:
    made = new_table_metadata(
        Schema(NestedField(1, "id", LongType())),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        location,
    )
    refs = {tag: SnapshotRef(snapshot_id=1, snapshot_ref_type=SnapshotRefType.TAG) for tag in tags}
    return loaded(made.model_copy(update={"refs": refs, "properties": properties}))


def test_a_table_is_ours_if_we_made_it_or_are_told_so() -> None:
    foreign, ours = table(), table(**{CREATED_BY: "calve 1"})
    assert why_not_owned(ours, None) is None
    assert why_not_owned(foreign, True) is None
    assert "owned: true" in (why_not_owned(foreign, None) or "")
    assert "owned: false" in (why_not_owned(ours, False) or "")


@pytest.mark.parametrize(
    "other",
    [
        "file:///lake/db/events",
        "file:/lake/db/events/",
        "/lake/db/events",
        "file:///lake/db/events/inner",
        "file:///lake/db",
        "file:///lake/",
    ],
)
def test_a_shared_location_is_seen(other: str) -> None:
    assert "db.other" in (why_files_stay(table(), "calve-p", [("db.other", other)]) or "")


@pytest.mark.parametrize("other", ["file:///lake/db/events_2", "file:///lake/db/event", "s3://lake/db/events"])
def test_a_neighbour_is_no_sharer(other: str) -> None:
    assert why_files_stay(table(), "calve-p", [("db.other", other)]) is None


def test_a_place_of_nobody_s_name_may_be_that_of_a_table_which_can_t_be_loaded() -> None:
    for own in ("file:///lake/db/events", "file:///lake/db/events-0f3c/"):
        assert why_files_stay(table(own), "calve-p", [], ["db.other"]) is None
    for shared in ("file:///lake/db", "file:///lake/db/tables"):
        assert "db.other" in (why_files_stay(table(shared), "calve-p", [], ["db.other"]) or "")


def test_s3_and_s3a_are_one_place() -> None:
    assert why_files_stay(table("s3://lake/db/events"), "calve-p", [("db.other", "s3a://lake/db/events")])


def test_what_another_pipeline_has_on_its_way_is_unknown() -> None:
    assert why_files_stay(table("file:///t", "calve-p"), "calve-p", []) is None
    assert "calve-q" in (why_files_stay(table("file:///t", "calve-p", "calve-q"), "calve-p", []) or "")

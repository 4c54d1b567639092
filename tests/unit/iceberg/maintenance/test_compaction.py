"""Which partitions are rewritten."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, TimeType

from calve.sink_core.config.sink_pipeline import TargetFileSize
from calve.sink_core.iceberg.maintenance.compaction import (
    PARTITIONS_PER_CALL,
    PartitionFiles,
    compactable,
    conditions,
    due,
    within,
    worth_it,
)
from calve.sink_core.iceberg.maintenance.shape import LiveFile

TARGET = 1000


def found(*files: LiveFile, settled_before_ms: int = 100) -> list[PartitionFiles]:
    return worth_it(files, target_bytes=TARGET, settled_before_ms=settled_before_ms, max_deletes=3)


def test_files_from_three_quarters_of_the_target_on_are_left_alone() -> None:
    assert found(LiveFile(0, ("a",), 750, 0)) == []
    assert found(LiveFile(0, ("a",), 749, 0)) == [PartitionFiles(0, ("a",), 1, 749, 1)]


def test_partitions_of_different_specs_are_different() -> None:
    assert len(found(LiveFile(0, (1,), 1, 0), LiveFile(1, (1,), 1, 0), LiveFile(1, (None,), 1, 0))) == 3


def test_a_file_counts_once_it_is_older_than_the_lag_or_its_snapshot_is_expired() -> None:
    [partition] = found(LiveFile(0, (), 1, 99), LiveFile(0, (), 1, 100), LiveFile(0, (), 1, None))
    assert (partition.small, partition.settled) == (3, 2)


def test_due_is_what_has_enough_settled_files_the_worst_first() -> None:
    few, some, many = (PartitionFiles(0, (n,), small=n, settled=n) for n in (4, 5, 9))
    hot = PartitionFiles(0, ("hot",), small=50, settled=4)
    assert due([few, some, hot, many], min_files=5) == [many, some]


def test_a_file_with_many_deletes_is_due_whatever_its_size_and_age() -> None:
    partitions = found(
        LiveFile(0, ("few",), 900, 100, deletes=2),
        LiveFile(0, ("many",), 900, 100, deletes=3),
        LiveFile(0, ("both",), 1, 100, deletes=3),
    )
    assert partitions == [
        PartitionFiles(0, ("many",), bytes=900, deleted_from=1),
        PartitionFiles(0, ("both",), small=1, bytes=1, deleted_from=1),
    ]
    assert [partition.partition for partition in due(partitions, min_files=5)] == [("both",), ("many",)]


def test_a_run_is_bounded_but_gets_somewhere() -> None:
    parts = [PartitionFiles(0, (n,), bytes=100) for n in range(5)]
    assert within(parts, 250) == parts[:2]
    assert within(parts, 1) == parts[:1]
    assert within([], 1) == []


def by_identity(catalog: Catalog, kind: IcebergType, order: SortOrder = UNSORTED_SORT_ORDER) -> Table:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "p", kind, required=False))
    return catalog.create_table("db.t", schema, partition_spec=spec, sort_order=order)


def test_what_a_table_has_to_rewrite_goes_by_its_own_size_and_order(catalog: Catalog) -> None:
    table = by_identity(catalog, LongType(), SortOrder(SortField(source_id=1, transform=IdentityTransform())))
    for number in (1, 1, 2):
        table.append(pa.table({"p": pa.array([number], pa.int64())}))
    looked = compactable(table, TargetFileSize(10_000, stated=True), settled_before_ms=2**62, max_deletes=3)
    assert {p.partition: (p.small, p.settled) for p in looked.partitions} == {(1,): (2, 2), (2,): (1, 1)}
    assert (looked.target_bytes, looked.is_sorted) == (10_000, True)
    tiny = compactable(table, TargetFileSize(1, stated=True), settled_before_ms=2**62, max_deletes=3)
    assert tiny.partitions == []


def test_partitions_are_selected_some_at_a_time(catalog: Catalog) -> None:
    table = by_identity(catalog, LongType())
    partitions = [PartitionFiles(0, (number,)) for number in range(PARTITIONS_PER_CALL + 1)]
    first, second = conditions(table, partitions, catalog="lake")
    assert first == " OR ".join(f"(`p` = {number})" for number in range(PARTITIONS_PER_CALL))
    assert second == f"(`p` = {PARTITIONS_PER_CALL})"


def test_all_is_selected_where_a_partition_can_t_be_told(catalog: Catalog) -> None:
    """Spark has no times."""
    assert list(conditions(by_identity(catalog, TimeType()), [PartitionFiles(0, (5,))], catalog="lake")) == [""]

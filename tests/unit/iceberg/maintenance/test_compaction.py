"""Which partitions are rewritten."""

from __future__ import annotations

from calve.sink_core.iceberg.maintenance.compaction import PartitionFiles, due, within, worth_it
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

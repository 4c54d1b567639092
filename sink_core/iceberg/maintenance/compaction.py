"""Which partitions of a table are worth rewriting, and the conditions that select them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

from calve.sink_core.config.sink_pipeline import TargetFileSize
from calve.sink_core.iceberg.maintenance.predicate import predicate
from calve.sink_core.iceberg.maintenance.shape import LiveFile, live_files
from calve.sink_core.iceberg.write.parquet import target_file_bytes

SMALL = 0.75
"""A file below this share of the target size is small: where Iceberg's `rewrite_data_files` draws the line too."""

PARTITIONS_PER_CALL = 50
"""A condition for each of them stands in one statement."""


@dataclass(slots=True)
class PartitionFiles:
    """A partition's files to rewrite, and their bytes: small ones, of which `settled` are older than the lag,
    and `deleted_from`, those with many deletes.
    """

    spec_id: int
    partition: tuple[object, ...]
    small: int = 0
    bytes: int = 0
    settled: int = 0
    deleted_from: int = 0


@dataclass(frozen=True, slots=True)
class Compactable:
    """What a table has to rewrite, into files of `target_bytes`. `is_sorted`: it has an order that rows are to have."""

    partitions: Sequence[PartitionFiles]
    target_bytes: int
    is_sorted: bool


def compactable(table: Table, size: TargetFileSize, *, settled_before_ms: int, max_deletes: int) -> Compactable:
    """The partitions of the table's head as `worth_it` has them, by the file size that ingestion aims at too."""
    target_bytes = target_file_bytes(table.metadata, size)
    found = worth_it(
        live_files(table, count_deletes=max_deletes),
        target_bytes=target_bytes,
        settled_before_ms=settled_before_ms,
        max_deletes=max_deletes,
    )
    return Compactable(found, target_bytes, bool(table.sort_order().fields))


def worth_it(
    files: Iterable[LiveFile], *, target_bytes: int, settled_before_ms: int, max_deletes: int
) -> list[PartitionFiles]:
    """The small files and those with `max_deletes` or more by partition, for each partition that has any."""
    found: dict[tuple[int, tuple[object, ...]], PartitionFiles] = {}
    for file in files:
        small, deleted_from = file.size < SMALL * target_bytes, file.deletes >= max_deletes
        if not small and not deleted_from:
            continue
        key = (file.spec_id, file.partition)
        here = found.setdefault(key, PartitionFiles(*key))
        here.bytes += file.size
        here.small += small
        here.settled += small and (file.added_ms is None or file.added_ms < settled_before_ms)
        here.deleted_from += deleted_from
    return list(found.values())


def due(partitions: Iterable[PartitionFiles], *, min_files: int) -> list[PartitionFiles]:
    """Those with a file that many deletes are for, or at least `min_files` settled small files, the worst first."""
    wanted = (p for p in partitions if p.deleted_from or p.settled >= min_files)
    return sorted(wanted, key=lambda p: (p.deleted_from, p.small), reverse=True)


def within(partitions: Sequence[PartitionFiles], max_bytes: int) -> list[PartitionFiles]:
    """As many from the front as stay within `max_bytes`; the first one in any case, so that there is progress."""
    taken: list[PartitionFiles] = []
    total = 0
    for partition in partitions:
        total += partition.bytes
        if taken and total > max_bytes:
            break
        taken.append(partition)
    return taken


def conditions(table: Table, partitions: Sequence[PartitionFiles], *, catalog: str) -> Iterator[str]:
    """Conditions in Spark's SQL that together select the partitions; one that selects everything where a partition
    can't be told.
    """
    specs, schema = table.specs(), table.schema()
    told = [predicate(specs[p.spec_id], schema, p.partition, catalog=catalog) for p in partitions]
    if not all(told):
        yield ""
        return
    for start in range(0, len(told), PARTITIONS_PER_CALL):
        yield " OR ".join(f"({part})" for part in told[start : start + PARTITIONS_PER_CALL])

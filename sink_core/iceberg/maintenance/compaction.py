"""Which partitions of a table are worth rewriting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calve.sink_core.iceberg.maintenance.shape import LiveFile

SMALL = 0.75
"""A file below this share of the target size is small: where Iceberg's `rewrite_data_files` draws the line too."""


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

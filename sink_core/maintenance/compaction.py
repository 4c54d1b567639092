"""Which partitions of a table are worth rewriting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sink_core.maintenance.shape import LiveFile

SMALL = 0.75
"""A file below this share of the target size is small: where Iceberg's `rewrite_data_files` draws the line too."""


@dataclass(slots=True)
class PartitionFiles:
    """A partition's small files. `settled` are those older than the lag."""

    spec_id: int
    partition: tuple[object, ...]
    small: int = 0
    small_bytes: int = 0
    settled: int = 0


def small_files(files: Iterable[LiveFile], *, target_bytes: int, settled_before_ms: int) -> list[PartitionFiles]:
    """The small files by partition, for each partition that has any."""
    found: dict[tuple[int, tuple[object, ...]], PartitionFiles] = {}
    for file in files:
        if file.size >= SMALL * target_bytes:
            continue
        key = (file.spec_id, file.partition)
        here = found.setdefault(key, PartitionFiles(*key))
        here.small += 1
        here.small_bytes += file.size
        here.settled += file.added_ms is None or file.added_ms < settled_before_ms
    return list(found.values())


def due(partitions: Iterable[PartitionFiles], *, min_files: int) -> list[PartitionFiles]:
    """Those with at least `min_files` settled small files, the worst first."""
    return sorted((p for p in partitions if p.settled >= min_files), key=lambda p: p.small, reverse=True)


def within(partitions: Sequence[PartitionFiles], max_bytes: int) -> list[PartitionFiles]:
    """As many from the front as stay within `max_bytes`; the first one in any case, so that there is progress."""
    taken: list[PartitionFiles] = []
    total = 0
    for partition in partitions:
        total += partition.small_bytes
        if taken and total > max_bytes:
            break
        taken.append(partition)
    return taken

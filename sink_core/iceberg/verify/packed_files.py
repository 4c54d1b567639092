"""Data files by the hundred thousand: a proof needs of each what reading it needs, and not kilobytes of metrics."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

_ROOT = "\0"
"""Stands for the table's location. No path has it."""


class PackedFiles(Sequence[FileScanTask]):
    """The files in their order, without metrics: some 30 bytes each beside the path below the table's `location`.

    Those with deletes are kept as they are, and so is what is no Parquet file.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._paths, self._ends = bytearray(), array("Q")
        self._sizes, self._rows, self._partitions = array("q"), array("q"), array("l")
        self._number_of: dict[tuple[int, Record], int] = {}
        self._numbered: list[tuple[int, Record]] = []
        self._as_they_are: dict[int, FileScanTask] = {}

    def append(self, task: FileScanTask) -> None:
        file = task.file
        if task.delete_files or file.file_format is not FileFormat.PARQUET:
            self._as_they_are[len(self)] = task
        self._paths += file.file_path.replace(self._location, _ROOT, 1).encode()
        self._ends.append(len(self._paths))
        self._sizes.append(file.file_size_in_bytes)
        self._rows.append(file.record_count)
        self._partitions.append(self._number((file.spec_id, file.partition)))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> FileScanTask: ...
    @overload
    def __getitem__(self, place: slice) -> list[FileScanTask]: ...
    def __getitem__(self, place: int | slice) -> FileScanTask | list[FileScanTask]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        place = range(len(self))[place]
        return self._as_they_are.get(place) or FileScanTask(self._file(place))

    def paths(self) -> Iterator[str]:
        """Of all files; those of deletes once, behind the others."""
        yield from map(self._path, range(len(self)))
        deletes = (delete.file_path for task in self._as_they_are.values() for delete in task.delete_files)
        yield from dict.fromkeys(deletes)

    def named_often(self) -> dict[str, int]:
        """Paths that are there more than once, and how often."""
        hashes = np.fromiter(map(hash, map(self._path, range(len(self)))), np.int64, len(self))
        found, times = np.unique(hashes, return_counts=True)
        suspects = np.flatnonzero(np.isin(hashes, found[times > 1])).tolist()
        return {path: often for path, often in Counter(map(self._path, suspects)).items() if often > 1}

    def _number(self, partition: tuple[int, Record]) -> int:
        number = self._number_of.setdefault(partition, len(self._numbered))
        if number == len(self._numbered):
            self._numbered.append(partition)
        return number

    def _path(self, place: int) -> str:
        start = self._ends[place - 1] if place else 0
        return self._paths[start : self._ends[place]].decode().replace(_ROOT, self._location, 1)

    def _file(self, place: int) -> DataFile:
        spec_id, partition = self._numbered[self._partitions[place]]
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._path(place),
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=self._rows[place],
            file_size_in_bytes=self._sizes[place],
        )
        file.spec_id = spec_id
        return file

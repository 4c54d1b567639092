"""Columns of many small Parquet files, read together.

pyiceberg works out for each file how its columns become the table's. For a file of one row that costs much more than
reading it, and a table that is fed often has many such files between two compactions. Nearly all of them have the
table's columns as they are: these are read by one scan. All others are left to pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow.dataset import FileSystemDataset, ParquetFileFormat, ParquetFileFragment
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from sink_core.tables.requests import answers

FILES_AT_ONCE = 256
"""Files that are open at a time, at most."""

BYTES_AT_ONCE = 16 * 2**20
"""Their size in all, at most; a larger file is read alone."""

_FORMAT = ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class Together:
    """Rows of those files that were alike, and the files that were not."""

    batches: list[pa.RecordBatch]
    others: list[FileScanTask]


@dataclass(slots=True)
class Alike:
    """Reads the columns of `schema`, which are a table's, out of files that have them under the same ids, names and
    types. What schema a file has is compared with those met before.
    """

    io: FileIO
    schema: Schema
    _known: list[tuple[pa.Schema, bool]] = field(default_factory=list[tuple[pa.Schema, bool]])

    def read(self, tasks: Sequence[FileScanTask]) -> Together:
        """Rows of files without deletes. Raises what Arrow does if one can't be read; which one, it does not say."""
        with ExitStack() as opened:

            def look(task: FileScanTask) -> tuple[ParquetFileFragment, pa.Schema]:
                source = opened.enter_context(self.io.new_input(task.file.file_path).open())
                fragment = _FORMAT.make_fragment(source)
                # Of the whole file the writer may say anything; what columns are, is said of each.
                return fragment, fragment.physical_schema.remove_metadata()

            found = list(zip(tasks, answers(look, tasks), strict=True))
            others = [task for task, (_, physical) in found if not self._has_columns(physical)]
            names, batches = [each.name for each in self.schema.fields], list[pa.RecordBatch]()
            for known, has_columns in self._known:
                same = [fragment for _, (fragment, physical) in found if has_columns and _equal(physical, known)]
                if same:
                    rows = FileSystemDataset(same, known, _FORMAT).to_table(columns=names)
                    batches += rows.combine_chunks().to_batches()
            return Together(batches, others)

    def _has_columns(self, physical: pa.Schema) -> bool:
        for known, has_columns in self._known:
            if _equal(physical, known):
                return has_columns
        has_columns = _has(physical, self.schema)
        self._known.append((physical, has_columns))
        return has_columns


def in_groups(tasks: Iterable[FileScanTask]) -> Iterator[list[FileScanTask]]:
    """The files, those that `Alike` may read as many at a time as it should, all others alone."""
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        if task.delete_files or task.file.file_format is not FileFormat.PARQUET:
            yield [task]
            continue
        if group and (len(group) == FILES_AT_ONCE or size + task.file.file_size_in_bytes > BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    if group:
        yield group


def _equal(one: pa.Schema, other: pa.Schema) -> bool:
    # Field ids are among the metadata.
    return one.equals(other, check_metadata=True)


def _has(physical: pa.Schema, wanted: Schema) -> bool:
    try:
        found = {each.field_id: each for each in pyarrow_to_schema(physical).fields}
    except (ValueError, TypeError):
        # No ids, or types that are not Iceberg's.
        return False
    alike = (found.get(each.field_id) for each in wanted.fields)
    pairs = zip(alike, wanted.fields, strict=True)
    return all(has is not None and (has.name, has.field_type) == (each.name, each.field_type) for has, each in pairs)

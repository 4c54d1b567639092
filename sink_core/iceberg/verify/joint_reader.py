"""Columns of many small Parquet files, read together.

pyiceberg works out for each file how its columns become the table's. For a file of one row that costs much more than
reading it, and a table that is fed often has many such files between two compactions. Nearly all of them have the
table's columns as they are: these are read by Arrow, and their rows joined. All others are left to pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetSchema
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from calve.sink_core.iceberg.files.requests import answers

FILES_AT_ONCE = 64
"""Files whose rows are joined, at most: more of them are slower, as they no longer fit into caches."""

BYTES_AT_ONCE = 16 * 2**20
"""Their size in all, at most; a larger file is read alone."""

READ_WHOLE = 2**18
"""Size of a file that is fetched by one request; of a larger one only what is asked for."""


@dataclass(frozen=True, slots=True)
class JointFiles:
    """Rows of those files that were alike, and the files that were not."""

    batches: list[pa.RecordBatch]
    others: list[FileScanTask]


@dataclass(slots=True)
class JointReader:
    """Reads the columns of `schema`, which are a table's, out of files that have them under the same ids, names and
    types. What schema a file has is compared with those met before.
    """

    io: FileIO
    schema: Schema
    _known: list[tuple[ParquetSchema, bool]] = field(default_factory=list[tuple[ParquetSchema, bool]])

    def read(self, tasks: Sequence[FileScanTask]) -> JointFiles:
        """Rows of files without deletes. Raises what Arrow does if one can't be read; which one, it does not say."""
        others: list[FileScanTask] = []
        alike: list[list[pa.Table]] = []
        for task, rows in zip(tasks, answers(self._rows, tasks), strict=True):
            if rows is None:
                others.append(task)
                continue
            # Strings are large ones or not, by who wrote them.
            same = next((tables for tables in alike if tables[0].schema.equals(rows.schema)), None)
            if same is None:
                alike.append([rows])
            else:
                same.append(rows)
        batches = [batch for tables in alike for batch in pa.concat_tables(tables).combine_chunks().to_batches()]
        return JointFiles(batches, others)

    def _rows(self, task: FileScanTask) -> pa.Table | None:
        with self.io.new_input(task.file.file_path).open() as opened:
            small = task.file.file_size_in_bytes <= READ_WHOLE
            file = ParquetFile(pa.BufferReader(opened.read()) if small else opened, pre_buffer=not small)
            if not self._has_columns(file):
                return None
            return file.read([each.name for each in self.schema.fields], use_threads=False)

    def _has_columns(self, file: ParquetFile) -> bool:
        # `file.schema` would hold its footer, and be held by it, until Python looks for cycles.
        schema = ParquetSchema(file.metadata)
        for known, has_columns in self._known:
            if schema.equals(known):
                return has_columns
        # Of the whole file the writer may say anything; what columns are, is said of each.
        has_columns = _has(file.schema_arrow.remove_metadata(), self.schema)
        self._known.append((schema, has_columns))
        return has_columns


def in_groups(tasks: Iterable[FileScanTask]) -> Iterator[list[FileScanTask]]:
    """The files, those that `JointReader` may read as many at a time as it should, all others alone."""
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


def _has(physical: pa.Schema, wanted: Schema) -> bool:
    try:
        found = {each.field_id: each for each in pyarrow_to_schema(physical).fields}
    except (ValueError, TypeError):
        # No ids, or types that are not Iceberg's.
        return False
    alike = (found.get(each.field_id) for each in wanted.fields)
    pairs = zip(alike, wanted.fields, strict=True)
    return all(has is not None and (has.name, has.field_type) == (each.name, each.field_type) for has, each in pairs)

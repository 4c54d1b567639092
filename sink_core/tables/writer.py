"""Arrow batches into Parquet data files of an Iceberg table, in bounded memory.

Rows are gathered up to a row group's size, then split by partition once, and each part becomes a row group of its
partition's open file. A file that has reached its target size is closed, and so is the least recently used one when
too many are open; memory therefore grows neither with the batch nor with the number of partitions. Writers of one
task share what they may hold, so that it doesn't grow with the number of tables either.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from sink_core.errors import TableUnusable
from sink_core.tables.arrow import arrow_schema, conform, file_schema
from sink_core.tables.dictionary import dictionary_paths
from sink_core.tables.files import WrittenFile, describe_file
from sink_core.tables.kafka_column import KAFKA_COLUMN
from sink_core.tables.partition import Partition, fits_in_path, split
from sink_core.tables.usable import ParquetSettings, parquet_settings

MAX_OPEN_FILES = 64
"""On object stores each open file holds a part of some megabytes that is not yet uploaded."""

BUFFER_BYTES = 128 * 1024 * 1024
"""Arrow bytes gathered at most, however large the table wants its row groups."""


class Budget:
    """What the writers of one task hold together: Arrow bytes gathered (splitting them takes about as much again), and
    open files.

    Over `buffer_bytes` the writer that has gathered most writes it out; over `max_open_files` the file that was
    written to least recently is closed, whatever its table.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, max_open_files: int = MAX_OPEN_FILES) -> None:
        self.buffer_bytes = buffer_bytes
        self._max_open_files = max_open_files
        self._gathered: dict[TableWriter, int] = {}
        self._total = 0
        self._open: OrderedDict[tuple[_Files, Record | None], None] = OrderedDict()

    @property
    def gathered_bytes(self) -> int:
        return self._total

    @property
    def open_files(self) -> int:
        return len(self._open)

    def gathers(self, writer: TableWriter, number: int) -> None:
        """`writer` holds `number` bytes now."""
        self._total += number - self._gathered.pop(writer, 0)
        if number:
            self._gathered[writer] = number
        while self._total > self.buffer_bytes:
            max(self._gathered, key=self._gathered.__getitem__).flush()

    def touched(self, files: _Files, key: Record | None) -> None:
        """A file of `files` was written to, and is open."""
        self._open[files, key] = None
        self._open.move_to_end((files, key))
        while len(self._open) > self._max_open_files:
            (others, oldest), _ = self._open.popitem(last=False)
            others.close(oldest)

    def closed(self, files: _Files, key: Record | None) -> None:
        self._open.pop((files, key), None)


class TableWriter:
    """Writes data files of one table, by its current schema and default partition spec.

    `file_prefix` begins the file names, `budget` bounds what is held in memory, shared with other writers,
    `target_file_size` in bytes is used if the table has no such property.
    """

    def __init__(
        self,
        io: FileIO,
        metadata: TableMetadata,
        file_prefix: str,
        *,
        target_file_size: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.schema = arrow_schema(metadata.schema())
        self._budget = budget or Budget()
        settings = parquet_settings(metadata, target_file_size=target_file_size)
        self._files = _Files(io, metadata, file_prefix, settings, self._budget)
        self._spec, self._iceberg_schema = metadata.spec(), metadata.schema()
        self._location = metadata.location
        self._limit = min(settings.row_group_size, settings.target_file_size, self._budget.buffer_bytes)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Take in rows, columns by name; an optional column they lack becomes null.

        Raises TableUnusable if they lack a required one or a column is of another type than the table's.
        """
        batch = self._conform(rows)
        if batch.num_rows:
            self._gathered.append(batch)
            self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= self._limit:
            self.flush()
        else:
            self._budget.gathers(self, self._gathered_bytes)

    def close(self) -> list[WrittenFile]:
        """Write what is left, close all files, and describe them. The writer is done with then."""
        self.flush()
        return self._files.close_all()

    def abort(self) -> None:
        """Close what is open, whatever state it is in; the files are nobody's and left to orphan cleanup."""
        self._gathered, self._gathered_bytes = [], 0
        self._budget.gathers(self, 0)
        with suppress(OSError):
            self._files.close_all()

    def _conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        known = set(rows.schema.names)
        lacking = [f.name for f in self.schema if not f.nullable and f.name not in known]
        if lacking:
            raise TableUnusable(
                f"table at {self._location}: requires {', '.join(lacking)}, which Calve does not write",
                hint="make the columns optional, or drop them",
            )
        columns = [rows.column(f.name) if f.name in known else pa.nulls(len(rows), f.type) for f in self.schema]
        try:
            return conform(columns, self.schema)
        except pa.ArrowTypeError as error:
            raise TableUnusable(
                f"table at {self._location}: {error}", hint="give the column the type Calve writes"
            ) from error

    def flush(self) -> None:
        """Write out what is gathered."""
        if not self._gathered:
            return
        rows = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        self._budget.gathers(self, 0)
        for partition, part in split(rows, self._spec, self._iceberg_schema):
            self._files.append(partition, part)


class _Files:
    """The open files of a table by partition, and the finished ones."""

    def __init__(
        self, io: FileIO, metadata: TableMetadata, file_prefix: str, settings: ParquetSettings, budget: Budget
    ) -> None:
        self.settings = settings
        self._budget = budget
        self._io, self._metadata, self._prefix = io, metadata, file_prefix
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._open: dict[Record | None, _OpenFile] = {}
        self._finished: list[WrittenFile] = []

    def append(self, partition: Partition | None, rows: pa.Table) -> None:
        key = partition.partition if partition else None
        self._budget.touched(self, key)
        if key not in self._open:
            self._open[key] = self._create(partition, rows)
        self._open[key].append(rows)
        if self._open[key].size >= self.settings.target_file_size:
            self.close(key)

    def close(self, key: Record | None) -> None:
        """Finish the file of a partition."""
        self._budget.closed(self, key)
        self._finished.append(self._open.pop(key).finish())

    def close_all(self) -> list[WrittenFile]:
        for key in list(self._open):
            self.close(key)
        return self._finished

    def _create(self, partition: Partition | None, first: pa.Table) -> _OpenFile:
        named = partition if partition and fits_in_path(partition.to_path()) else None
        path = self._locations.new_data_location(f"{self._prefix}-{uuid.uuid4()}.parquet", named)
        return _OpenFile(self._io, path, self._metadata, partition, self.settings, first)


class _OpenFile:
    """A Parquet file being written. `first` are the first rows that will be appended."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        metadata: TableMetadata,
        partition: Partition | None,
        settings: ParquetSettings,
        first: pa.Table,
    ) -> None:
        self._path, self._metadata = path, metadata
        self._partition = partition.partition if partition else Record()
        # Iceberg's Java writer sanitises names too; readers go by field id.
        self._names = sanitize_column_names(metadata.schema())
        self._schema = file_schema(self._names)
        paths = dictionary_paths(parquet_path_to_id_mapping(self._names), self._conformed(first))
        options: dict[str, Any] = {**settings.writer_options, "use_dictionary": paths or False}
        self._stream = cast(IO[bytes], io.new_output(path).create())
        self._writer = pq.ParquetWriter(self._stream, self._schema, **options)

    @property
    def size(self) -> int:
        """Bytes written so far; what is still to come is the footer."""
        return self._stream.tell()

    def append(self, rows: pa.Table) -> None:
        """One row group."""
        self._writer.write_table(self._conformed(rows), row_group_size=len(rows))

    def _conformed(self, rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches([conform(batch.columns, self._schema) for batch in rows.to_batches()])

    def finish(self) -> WrittenFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        spec, schema = self._metadata.spec(), self._metadata.schema()
        return describe_file(self._path, size, self._partition, spec, schema, self._statistics())

    def _statistics(self) -> DataFileStatistics:
        return data_file_statistics_from_parquet_metadata(
            parquet_metadata=self._writer.writer.metadata,
            stats_columns=self._plan(),
            parquet_column_mapping=parquet_path_to_id_mapping(self._names),
        )

    def _plan(self) -> dict[int, StatisticsCollector]:
        """What pyiceberg gathers, and bounds of `_kafka`'s parts, by which files are found: Iceberg's Java writer has
        them, pyiceberg leaves all within structs out.
        """
        plan = compute_statistics_plan(self._names, self._metadata.properties)
        for field_id, column in plan.items():
            if column.column_name.startswith(f"{KAFKA_COLUMN}.") and column.mode.type is MetricModeTypes.COUNTS:
                plan[field_id] = replace(column, mode=MetricsMode(MetricModeTypes.FULL))
        return plan

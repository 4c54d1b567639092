"""Arrow batches into Parquet data files of an Iceberg table, in bounded memory.

Rows are gathered up to a row group's size, then split by partition once, and each part becomes a row group of its
partition's open file. A file that has reached its target size is closed, and so is the least recently used one when
too many are open; memory therefore grows neither with the batch nor with the number of partitions. Writers of one
task share what they may hold, so that it doesn't grow with the number of tables either.

In a table with a sort order all of a file is in order: what was gathered is sorted, and its files are closed with it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import data_file_statistics_from_parquet_metadata, parquet_path_to_id_mapping
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.files.partition import Partition, fits_in_path, split
from calve.sink_core.iceberg.files.sort_order import Order
from calve.sink_core.iceberg.files.written import WrittenFile, describe_file
from calve.sink_core.iceberg.write.gathered import Gathered
from calve.sink_core.iceberg.write.metrics import statistics_plan
from calve.sink_core.iceberg.write.parquet import ParquetSettings, dictionary_paths, parquet_settings
from calve.sink_core.records.columns.arrow import conform, file_schema
from calve.sink_core.tables.budget import Budget


class TableWriter:
    """Writes data files of one table, by its current schema and default partition spec.

    `file_prefix` begins the file names, `budget` bounds what is held in memory, shared with other writers,
    `target_file_size` in bytes, if given, wins over the table's property.
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
        budget = budget or Budget()
        settings = parquet_settings(metadata, target_file_size=target_file_size)
        self._files = _Files(io, metadata, file_prefix, settings, budget)
        self._spec, self._iceberg_schema = metadata.spec(), metadata.schema()
        self._order = Order.within_files(metadata)
        # Sorted files get no more rows once they are closed, and so are better large.
        most = budget.buffer_bytes
        if self._order is None:
            most = min(settings.row_group_size, settings.target_file_size, most)
        self._gathered = Gathered(metadata, self, budget, most)
        self.schema = self._gathered.schema

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, columns by name; an optional column they lack becomes null.

        Raises TableUnusable if they lack a required one or a column is of another type than the table's.
        """
        self._gathered.add(rows)

    def close(self) -> list[WrittenFile]:
        """Write what is left, close all files, and describe them. The writer is done with then."""
        self.flush()
        return self._files.close_all()

    def abort(self) -> None:
        """Close what is open, whatever state it is in; the files are nobody's and left to orphan cleanup."""
        self._gathered.take()
        with suppress(OSError):
            self._files.close_all()

    def flush(self) -> None:
        """Write out what is gathered."""
        rows = self._gathered.take()
        if rows is None:
            return
        for partition, part in split(rows, self._spec, self._iceberg_schema):
            if self._order is not None:
                self._files.write_whole(partition, self._order.sort(part))
                continue
            self._files.append(partition, part)


class _Files:
    """The open files of a table by partition, and the finished ones."""

    def __init__(
        self, io: FileIO, metadata: TableMetadata, file_prefix: str, settings: ParquetSettings, budget: Budget
    ) -> None:
        self._settings, self._budget = settings, budget
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
        if self._open[key].size >= self._settings.target_file_size:
            self.close(key)

    def write_whole(self, partition: Partition | None, rows: pa.Table) -> None:
        """Files with these rows and no others, in their order."""
        most = max(1, len(rows) * self._settings.row_group_size // max(1, rows.nbytes))
        for start in range(0, len(rows), most):
            self.append(partition, rows.slice(start, most))
        self.close_all()

    def close(self, key: Record | None) -> None:
        """Finish the file of a partition."""
        self._budget.closed(self, key)
        self._finished.append(self._open.pop(key).finish())

    def close_all(self) -> list[WrittenFile]:
        """Every file that was finished until now."""
        for key in list(self._open):
            self.close(key)
        return self._finished

    def _create(self, partition: Partition | None, first: pa.Table) -> _OpenFile:
        named = partition if partition and fits_in_path(partition.to_path()) else None
        path = self._locations.new_data_location(f"{self._prefix}-{uuid.uuid4()}.parquet", named)
        return _OpenFile(self._io, path, self._metadata, partition, self._settings, first)


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
        blooms = {
            path: settings.blooms[field_id].options(len(first))
            for path, field_id in parquet_path_to_id_mapping(self._names).items()
            if field_id in settings.blooms
        }
        options: dict[str, Any] = {
            **settings.writer_options,
            "use_dictionary": paths or False,
            "bloom_filter_options": blooms or None,
        }
        self._row_group_rows = settings.row_group_rows
        self._stream = cast(IO[bytes], io.new_output(path).create())
        self._writer = pq.ParquetWriter(self._stream, self._schema, **options)

    @property
    def size(self) -> int:
        """Bytes written so far; what is still to come is the footer."""
        return self._stream.tell()

    def append(self, rows: pa.Table) -> None:
        """One row group, unless the table wants fewer rows in each."""
        self._writer.write_table(self._conformed(rows), row_group_size=self._row_group_rows or len(rows))

    def _conformed(self, rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches([conform(batch.columns, self._schema) for batch in rows.to_batches()])

    def finish(self) -> WrittenFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        spec, schema = self._metadata.spec(), self._metadata.schema()
        order = self._metadata.default_sort_order_id if Order.within_files(self._metadata) else None
        return describe_file(self._path, size, self._partition, spec, schema, self._statistics(), order)

    def _statistics(self) -> DataFileStatistics:
        return data_file_statistics_from_parquet_metadata(
            parquet_metadata=self._writer.writer.metadata,
            stats_columns=statistics_plan(self._metadata),
            parquet_column_mapping=parquet_path_to_id_mapping(self._names),
        )

"""Arrow batches into Parquet data files of an Iceberg table (`partitioned.py` says how)."""

from __future__ import annotations

import uuid
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from calve.sink_core.iceberg.compat import parquet_statistics
from calve.sink_core.iceberg.files.partition import Partition, fits_in_path
from calve.sink_core.iceberg.files.sort_order import Order
from calve.sink_core.iceberg.files.written import WrittenFile, describe_file
from calve.sink_core.iceberg.write.metrics import statistics_plan
from calve.sink_core.iceberg.write.parquet import ParquetSettings, dictionary_paths, parquet_settings
from calve.sink_core.iceberg.write.partitioned import PartitionedWriter
from calve.sink_core.records.columns.arrow import conform, file_schema
from calve.sink_core.tables.budget import Budget


class TableWriter(PartitionedWriter[WrittenFile]):
    """Writes data files of one table. `file_prefix` begins their names.

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
        settings = parquet_settings(metadata, target_file_size=target_file_size)
        locations = load_location_provider(metadata.location, metadata.properties)

        def opens(partition: Partition | None, first: pa.Table) -> _OpenFile:
            named = partition if partition and fits_in_path(partition.to_path()) else None
            path = locations.new_data_location(f"{file_prefix}-{uuid.uuid4()}.parquet", named)
            return _OpenFile(io, path, metadata, partition, settings, first)

        super().__init__(metadata, opens, settings, budget or Budget())


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
        names = parquet_path_to_id_mapping(self._names)
        return parquet_statistics(self._writer.writer.metadata, statistics_plan(self._metadata), names)

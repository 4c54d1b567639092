"""Arrow batches into staged base files of a Hudi table: Parquet, with Hudi's five columns before the table's.

The record key is the record's place in Kafka, `topic/partition/offset`: unique, and to be checked.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calve.sink_core.hudi.files.parquet import leaves, without_ids
from calve.sink_core.hudi.files.schema import META_COLUMNS
from calve.sink_core.hudi.files.staged import HudiFile, file_name, new_file_id, partition_path
from calve.sink_core.iceberg.files.partition import Partition
from calve.sink_core.iceberg.handles import TableMetadata
from calve.sink_core.iceberg.write.parquet import ParquetSettings, dictionary_paths, parquet_settings
from calve.sink_core.iceberg.write.partitioned import PartitionedWriter
from calve.sink_core.records.columns.arrow import conform
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN
from calve.sink_core.tables.budget import Budget

_TEXT = pa.string()
_SAME = pa.dictionary(pa.int32(), _TEXT)
_META_TYPES = (_SAME, _TEXT, _TEXT, _SAME, _SAME)
"""Of instant, number in the commit, record key, partition and file."""


class HudiWriter(PartitionedWriter[HudiFile]):
    """Writes base files of one table into `folder`, a folder of its staged files; `metadata` has its columns and
    partitions.
    """

    def __init__(
        self, folder: Path, metadata: TableMetadata, instant: str, *, target_file_size: int, budget: Budget
    ) -> None:
        settings = parquet_settings(metadata, target_file_size=target_file_size)
        folder.mkdir(parents=True, exist_ok=True)

        def opens(partition: Partition | None, first: pa.Table) -> _OpenBaseFile:
            return _OpenBaseFile(folder, instant, partition, settings, first)

        super().__init__(metadata, opens, settings, budget)


class _OpenBaseFile:
    def __init__(
        self, folder: Path, instant: str, partition: Partition | None, settings: ParquetSettings, first: pa.Table
    ) -> None:
        self._instant, self._file_id, self._folder = instant, new_file_id(), folder.name
        self._name = file_name(self._file_id, instant)
        fields = partition.field_values if partition else []
        self._partition = partition_path([each.field.name for each in fields], [each.value for each in fields])
        self._rows = 0
        # Hudi knows columns by name: field ids, which hold for one batch only, stay out.
        self._schema = pa.schema([without_ids(field) for field in first.schema])
        meta = [pa.field(name, kind) for name, kind in zip(META_COLUMNS, _META_TYPES, strict=True)]
        options: dict[str, Any] = {
            **settings.writer_options,
            # The form that Hudi's Avro readers, which compaction and clustering are, take decimals in.
            "store_decimal_as_integer": False,
            "store_schema": False,
            "use_dictionary": [
                *(name for name, kind in zip(META_COLUMNS, _META_TYPES, strict=True) if kind is _SAME),
                *dictionary_paths(leaves(self._schema), first),
            ],
        }
        self._stream = (folder / self._name).open("wb")
        self._writer = pq.ParquetWriter(self._stream, pa.schema([*meta, *self._schema]), **options)

    @property
    def size(self) -> int:
        return self._stream.tell()

    def append(self, rows: pa.Table) -> None:
        for batch in rows.combine_chunks().to_batches():
            own = conform(batch.columns, self._schema)
            columns = [*self._meta_columns(own), *own.columns]
            table = pa.Table.from_arrays(columns, schema=self._writer.schema)
            self._writer.write_table(table, row_group_size=len(batch))
            self._rows += len(batch)

    def finish(self) -> HudiFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        return HudiFile(self._file_id, self._name, self._folder, self._partition, self._rows, size)

    def _meta_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        number = len(rows)
        keys = record_keys(rows.column(KAFKA_COLUMN))
        numbers = pa.array(np.arange(self._rows, self._rows + number)).cast(_TEXT)
        places = pc.binary_join_element_wise(f"{self._instant}_{self._file_id}", numbers, "_")
        return [
            _same(self._instant, number),
            places,
            keys,
            _same(self._partition, number),
            _same(self._name, number),
        ]


def record_keys(origin: pa.Array) -> pa.Array:
    """The record keys of rows from these places, as the column `_kafka` has them."""
    topic, partition, offset = (part.cast(_TEXT) for part in origin.flatten()[:3])
    return pc.binary_join_element_wise(topic, partition, offset, "/")


def _same(text: str, number: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(number, np.int32)), pa.array([text], _TEXT))

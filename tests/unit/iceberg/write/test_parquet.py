"""The table's properties reach the Parquet files: looked up in the files, not in the settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import BooleanType, LongType, NestedField, StringType, StructType

from calve.sink_core.config.sink_pipeline import TargetFileSize
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.parquet import parquet_settings, target_file_bytes
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.columns.arrow import arrow_schema

COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "at", StructType(NestedField(4, "s", StringType()))),
    NestedField(5, "yes", BooleanType()),
)
ROWS = [{"id": i, "s": f"text {i}", "at": {"s": f"{i * 7919}"}, "yes": i % 2 == 0} for i in range(4_000)]
WriteTable = Callable[..., tuple[Table, list[WrittenFile]]]


def metadata(tmp_path: Path, **properties: str) -> TableMetadata:
    schema = Schema(NestedField(1, "a", LongType()))
    return new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(tmp_path), properties)


def test_a_file_size_that_the_pipeline_states_wins_over_the_table_s_own(tmp_path: Path) -> None:
    without, own = metadata(tmp_path), metadata(tmp_path, **{"write.target-file-size-bytes": "7"})
    stated, default = TargetFileSize(5, stated=True), TargetFileSize(5, stated=False)
    assert [target_file_bytes(own, wanted) for wanted in (stated, default)] == [5, 7]
    assert [target_file_bytes(without, wanted) for wanted in (stated, default)] == [5, 5]
    assert parquet_settings(own, target_file_size=5).target_file_size == 5
    assert parquet_settings(own).target_file_size == 7


def test_a_compression_level_only_goes_to_codecs_that_have_one(tmp_path: Path) -> None:
    level = {"write.parquet.compression-level": "9"}
    assert parquet_settings(metadata(tmp_path, **level)).writer_options["compression_level"] == 9
    snappy = metadata(tmp_path, **level, **{"write.parquet.compression-codec": "snappy"})
    assert "compression_level" not in parquet_settings(snappy).writer_options


@pytest.fixture
def write(catalog: SqlCatalog) -> WriteTable:
    """`write(**properties)` writes `ROWS` into a new table with these properties."""
    catalog.create_namespace("ns")

    def written(*, rows: list[dict[str, Any]] = ROWS, **properties: str) -> tuple[Table, list[WrittenFile]]:
        table = catalog.create_table(f"ns.t{uuid.uuid4().hex}", COLUMNS, properties=properties)
        writer = TableWriter(table.io, table.metadata, "calve-b-0")
        writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table.schema())))
        return table, writer.close()

    return written


def parquet(files: Iterable[WrittenFile]) -> pq.ParquetFile:
    (file,) = files
    return pq.ParquetFile(file.path.removeprefix("file://"))


def test_a_row_group_has_at_most_as_many_rows_as_the_table_wants(write: WriteTable) -> None:
    _table, files = write(**{"write.parquet.row-group-limit": "1500"})
    groups = parquet(files).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [1500, 1500, 1000]
    assert files[0].rows == 4_000
    assert len(files[0].split_offsets) == 3


@pytest.mark.parametrize(
    "limit",
    [{"write.parquet.page-row-limit": "100"}, {"write.parquet.page-size-bytes": "2000"}],
)
def test_pages_have_the_size_the_table_wants(write: WriteTable, limit: dict[str, str]) -> None:
    plain = {"write.parquet.compression-codec": "uncompressed"}
    _table, (usual,) = write(**plain)
    _table, (paged,) = write(**plain, **limit)
    # Each page has a header of its own.
    assert paged.column_sizes[1] > usual.column_sizes[1] + 50


def test_a_dictionary_is_given_up_at_the_size_the_table_wants(write: WriteTable) -> None:
    # Arrow looks at the dictionary's size once per 20,000 rows.
    rows = [row | {"s": f"{i % 1500} often the same text"} for i, row in enumerate(ROWS * 15)]
    plain = {"write.parquet.compression-codec": "uncompressed"}
    _table, (large,) = write(rows=rows, **plain)
    _table, (small,) = write(rows=rows, **plain, **{"write.parquet.dict-size-bytes": "1000"})
    assert small.column_sizes[2] > 2 * large.column_sizes[2]


def test_bloom_filters_of_the_columns_that_have_them_only(write: WriteTable) -> None:
    wanted = ("id", "at.s", "yes", "dropped")
    enabled = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in wanted}
    _table, (usual,) = write()
    _table, files = write(**enabled)
    _table, (tight,) = write(**enabled, **{"write.parquet.bloom-filter-fpp.column.id": "0.0001"})
    _table, (bounded,) = write(**enabled, **{"write.parquet.bloom-filter-max-bytes": "512"})
    # 4,000 values at 1 % take 38,270 bits, and the next power of two is 8 KiB.
    assert 2 * 8192 <= files[0].size - usual.size < 2 * 8192 + 500
    assert tight.size > files[0].size > bounded.size
    assert bounded.size - usual.size < 2 * 1024 + 500


def test_files_lie_where_the_table_wants_them(write: WriteTable, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    _table, (file,) = write(**{"write.data.path": elsewhere})
    assert file.path.startswith(f"{elsewhere}/calve-b-0-")
    table, (hashed,) = write(**{"write.object-storage.enabled": "true"})
    below = hashed.path.removeprefix(f"{table.location()}/data/")
    assert [len(part) for part in below.split("/")[:3]] == [4, 4, 4]
    assert pq.ParquetFile(hashed.path.removeprefix("file://")).metadata.num_rows == len(ROWS)

"""A table Calve can't write to is refused before anything is read, and the property to change is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, TimestampNanoType

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.write.usable import check_usable
from tests.codes import raises

COLUMNS = Schema(NestedField(1, "a", LongType()))


def metadata(tmp_path: Path, schema: Schema = COLUMNS, **properties: str) -> TableMetadata:
    return new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(tmp_path), properties)


@pytest.mark.parametrize(
    ("properties", "code", "named"),
    [
        ({"format-version": "1"}, Code.OTHER_FORMAT_VERSION, ["format-version", 1]),
        ({"format-version": "3"}, Code.OTHER_FORMAT_VERSION, ["format-version", 3]),
        ({"write.format.default": "orc"}, Code.NOT_PARQUET, ["write.format.default", "orc"]),
        ({"write.format.default": "avro"}, Code.NOT_PARQUET, ["write.format.default", "avro"]),
        ({"write.parquet.compression-codec": "lzo"}, Code.CODEC, ["write.parquet.compression-codec", "lzo"]),
        ({"encryption.key-id": "k"}, Code.ENCRYPTED, ["encryption.key-id"]),
        (
            {"write.distribution-mode": "shuffle"},
            Code.TABLE_PROPERTY,
            ["write.distribution-mode", "shuffle", "none, hash, range"],
        ),
        ({"write.parquet.page-row-limit": "many"}, Code.TABLE_PROPERTY, ["write.parquet.page-row-limit", "many"]),
        ({"write.metadata.metrics.default": "most"}, Code.TABLE_PROPERTY, ["metrics mode", "most"]),
        ({"write.metadata.metrics.column.a": "truncate(0)"}, Code.TABLE_PROPERTY, ["Truncation length"]),
        (
            {
                "write.parquet.bloom-filter-enabled.column.a": "true",
                "write.parquet.bloom-filter-fpp.column.a": "1",
            },
            Code.TABLE_PROPERTY,
            ["write.parquet.bloom-filter-fpp.column.a", 1],
        ),
    ],
)
def test_the_property_to_change_is_named(
    tmp_path: Path, properties: dict[str, str], code: Code, named: list[object]
) -> None:
    with raises(code, "ns.t", *named, of=TableUnusable):
        check_usable(metadata(tmp_path, **properties), table="ns.t")


def test_a_table_needs_columns(tmp_path: Path) -> None:
    with raises(Code.NO_COLUMNS, "ns.t"):
        check_usable(metadata(tmp_path, Schema()), table="ns.t")


def test_types_of_format_version_3_are_named_with_their_column(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "moment", TimestampNanoType()))
    table = metadata(tmp_path, schema, **{"format-version": "3"}).model_copy(update={"format_version": 2})
    with raises(Code.NEW_TYPE, "moment", "timestamp_ns"):
        check_usable(table, table="ns.t")


@pytest.mark.parametrize("codec", ["zstd", "ZSTD", "snappy", "gzip", "lz4", "brotli", "uncompressed"])
def test_the_usual_codecs_can_be_written(tmp_path: Path, codec: str) -> None:
    check_usable(metadata(tmp_path, **{"write.parquet.compression-codec": codec}), table="ns.t")


def test_a_partition_by_fixed_bytes_is_refused(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "digest", FixedType(16)))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "digest"))
    table = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, str(tmp_path))
    with raises(Code.FIXED_PARTITION, "t", "digest", "fixed[16]"):
        check_usable(table, table="t")

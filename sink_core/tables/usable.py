"""What Calve can write to, and the table's properties that decide how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType
from pyiceberg.utils.properties import property_as_int

from sink_core.errors import TableUnusable

FORMAT_VERSION = 2
_TYPES_OF_VERSION_3 = (UnknownType, TimestampNanoType, TimestamptzNanoType, GeometryType, GeographyType)
_NO_CODEC = "none"
# Java's writer gives a dictionary up once it doesn't pay, Arrow's only at this size: at Iceberg's default of 2 MiB,
# columns of mostly different values took a tenth more time and space.
_DICTIONARY_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How data files are written; sizes in bytes. `writer_options` are pyarrow's ParquetWriter's."""

    target_file_size: int
    row_group_size: int
    writer_options: Mapping[str, object]


def check_usable(metadata: TableMetadata, *, table: str) -> None:
    """Raise TableUnusable, naming the property, for a table that Calve cannot write to."""
    if metadata.format_version != FORMAT_VERSION:
        raise TableUnusable(
            f"{table}: format-version is {metadata.format_version}, Calve writes {FORMAT_VERSION}",
            hint="upgrade a version 1 table with the property format-version=2; a version 3 table has no way back, "
            "create another",
        )
    file_format = metadata.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
    if file_format.lower() != "parquet":
        raise TableUnusable(
            f"{table}: write.format.default is {file_format}, Calve writes parquet",
            hint="set the table property write.format.default=parquet; files of other formats stay readable",
        )
    codec = _codec(metadata)
    if codec != _NO_CODEC and not _available(codec):
        raise TableUnusable(
            f"{table}: {TableProperties.PARQUET_COMPRESSION} is {codec}, which this build of Arrow can't write",
            hint=f"set the table property {TableProperties.PARQUET_COMPRESSION}=zstd; older files stay readable",
        )
    if metadata.properties.get("encryption.key-id"):
        raise TableUnusable(
            f"{table}: encryption.key-id is set, Calve writes no encrypted files", hint="use a table without encryption"
        )
    _check_schema(metadata.schema(), table)


def parquet_settings(metadata: TableMetadata, *, target_file_size: int | None = None) -> ParquetSettings:
    """What the table's `write.*` properties say, with Iceberg's defaults.

    The table's `write.target-file-size-bytes` wins over `target_file_size`, the pipeline's.
    """
    properties = metadata.properties
    target = property_as_int(properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, target_file_size)
    codec = _codec(metadata)
    sizes: dict[str, tuple[str, int | None]] = {
        "data_page_size": (TableProperties.PARQUET_PAGE_SIZE_BYTES, TableProperties.PARQUET_PAGE_SIZE_BYTES_DEFAULT),
        "dictionary_pagesize_limit": (TableProperties.PARQUET_DICT_SIZE_BYTES, _DICTIONARY_BYTES),
        "write_batch_size": (TableProperties.PARQUET_PAGE_ROW_LIMIT, TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT),
    }
    options = {option: property_as_int(properties, key, default) for option, (key, default) in sizes.items()}
    if codec != _NO_CODEC and pa.Codec.supports_compression_level(codec):
        options["compression_level"] = property_as_int(properties, TableProperties.PARQUET_COMPRESSION_LEVEL)
    row_group = property_as_int(
        properties, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT
    )
    return ParquetSettings(
        target_file_size=target or TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        row_group_size=row_group or TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT,
        # Decimals as Iceberg's specification wants them: integers up to 18 digits.
        writer_options={"compression": codec, "store_decimal_as_integer": True, **options},
    )


def _codec(metadata: TableMetadata) -> str:
    codec = metadata.properties.get(TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT)
    return _NO_CODEC if codec.lower() == "uncompressed" else codec.lower()


def _available(codec: str) -> bool:
    try:
        return pa.Codec.is_available(codec)
    except ValueError:
        return False


def _check_schema(schema: Schema, table: str) -> None:
    if not schema.fields:
        raise TableUnusable(f"{table}: has no columns", hint="add the columns the records have")
    for field_id in schema.field_ids:
        kind = schema.find_type(field_id)
        if isinstance(kind, _TYPES_OF_VERSION_3):
            raise TableUnusable(
                f"{table}: column {schema.find_column_name(field_id)} is {kind}, a type of format version 3",
                hint="use a type of format version 2",
            )

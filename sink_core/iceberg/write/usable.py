"""What Calve can write to."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import FixedType, GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.files.manifest_list import FORMAT_VERSION
from calve.sink_core.iceberg.files.sort_order import distribution_of
from calve.sink_core.iceberg.write.metrics import statistics_plan
from calve.sink_core.iceberg.write.parquet import NO_CODEC, codec_of, parquet_settings

_TYPES_OF_VERSION_3 = (UnknownType, TimestampNanoType, TimestamptzNanoType, GeometryType, GeographyType)


def check_usable(metadata: TableMetadata, *, table: str) -> None:
    """Raise TableUnusable, naming the property, for a table that Calve cannot write to."""
    if metadata.format_version != FORMAT_VERSION:
        raise TableUnusable(
            f"{table}: format-version is {metadata.format_version}, Calve writes {FORMAT_VERSION}",
            hint="upgrade a version 1 table with the property format-version=2; a version 3 table has no way back, "
            "create another",
            code=Code.OTHER_FORMAT_VERSION,
        )
    file_format = metadata.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
    if file_format.lower() != "parquet":
        raise TableUnusable(
            f"{table}: write.format.default is {file_format}, Calve writes parquet",
            hint="set the table property write.format.default=parquet; files of other formats stay readable",
            code=Code.NOT_PARQUET,
        )
    codec = codec_of(metadata)
    if codec != NO_CODEC and not _available(codec):
        raise TableUnusable(
            f"{table}: {TableProperties.PARQUET_COMPRESSION} is {codec}, which this build of Arrow can't write",
            hint=f"set the table property {TableProperties.PARQUET_COMPRESSION}=zstd; older files stay readable",
            code=Code.CODEC,
        )
    if metadata.properties.get("encryption.key-id"):
        raise TableUnusable(
            f"{table}: encryption.key-id is set, Calve writes no encrypted files",
            hint="use a table without encryption",
            code=Code.ENCRYPTED,
        )
    _check_schema(metadata.schema(), table)
    for field in metadata.spec().partition_type(metadata.schema()).fields:
        if isinstance(field.field_type, FixedType):
            raise TableUnusable(
                f"{table}: partition field {field.name} is {field.field_type}; pyiceberg writes such values in a way "
                "that Java can't read",
                hint="partition by a bucket of the column, or by another one",
                code=Code.FIXED_PARTITION,
            )
    try:
        parquet_settings(metadata)
        statistics_plan(metadata)
        distribution_of(metadata)
    except (ValueError, AssertionError) as error:
        raise TableUnusable(f"{table}: {error}", hint="correct the table property", code=Code.TABLE_PROPERTY) from error


def _available(codec: str) -> bool:
    try:
        return pa.Codec.is_available(codec)
    except ValueError:
        return False


def _check_schema(schema: Schema, table: str) -> None:
    if not schema.fields:
        raise TableUnusable(f"{table}: has no columns", hint="add the columns the records have", code=Code.NO_COLUMNS)
    for field_id in schema.field_ids:
        kind = schema.find_type(field_id)
        if isinstance(kind, _TYPES_OF_VERSION_3):
            raise TableUnusable(
                f"{table}: column {schema.find_column_name(field_id)} is {kind}, a type of format version 3",
                hint="use a type of format version 2",
                code=Code.NEW_TYPE,
            )

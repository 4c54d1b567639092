"""How Parquet is written: the table's properties that decide it, as pyarrow takes them, and what gets a dictionary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BooleanType
from pyiceberg.utils.properties import property_as_bool, property_as_int

from calve.sink_core.config.sink_pipeline import TargetFileSize

SAMPLED_ROWS = 20_000
FEW_ROWS = 1_000
HARDLY_ANY_ROWS = 16
"""A dictionary is a page more for each column, which takes longer to write and to read than as many values."""
MOST_DISTINCT = 0.5

NO_CODEC = "none"
# Java's writer gives a dictionary up once it doesn't pay, Arrow's only at this size: at Iceberg's default of 2 MiB,
# columns of mostly different values took a tenth more time and space.
_DICTIONARY_BYTES = 256 * 1024
# After so many rows Arrow looks whether a page is full. More at a time is cheaper, and enough unless the table says
# how large its pages are to be.
_ROWS_BETWEEN_LOOKS = 1_024
_BLOOM_ENABLED = TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX
_BLOOM_FPP, _BLOOM_FPP_DEFAULT = "write.parquet.bloom-filter-fpp.column", 0.01


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How data files are written; sizes in bytes. `writer_options` are pyarrow's ParquetWriter's.

    `row_group_rows` is None where bytes alone bound a row group. `blooms` are the columns with a Bloom filter by field
    id.
    """

    target_file_size: int
    row_group_size: int
    row_group_rows: int | None
    writer_options: Mapping[str, object]
    blooms: Mapping[int, BloomFilter]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A column's filter: `fpp` is the share of wrong positives, `max_bytes` its size in a row group at most."""

    fpp: float
    max_bytes: int

    def options(self, rows: int) -> dict[str, float]:
        """pyarrow's, for row groups of about `rows`."""
        # Of a split block filter, as the Parquet specification sizes it. Arrow rounds up to a power of two, up to
        # twice as much.
        bits_per_value = -8 / math.log(1 - self.fpp ** (1 / 8))
        return {"ndv": max(1, min(rows, int(self.max_bytes * 8 / bits_per_value))), "fpp": self.fpp}


def target_file_bytes(metadata: TableMetadata, wanted: TargetFileSize) -> int:
    """The size that files of the table are to have. Raises as `parquet_settings` does."""
    own = property_as_int(metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
    return wanted.bytes if wanted.stated or not own else own


def parquet_settings(metadata: TableMetadata, *, target_file_size: int | None = None) -> ParquetSettings:
    """What the table's `write.*` properties say, with Iceberg's defaults.

    `target_file_size` in bytes, if given, wins over the table's `write.target-file-size-bytes`. Raises ValueError,
    naming the property, for one that can't be read.
    """
    number = partial(property_as_int, metadata.properties)
    target = target_file_size or number(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
    row_group = number(TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES)
    return ParquetSettings(
        target_file_size=target or TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        row_group_size=row_group or TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT,
        row_group_rows=number(TableProperties.PARQUET_ROW_GROUP_LIMIT),
        writer_options=_writer_options(metadata),
        blooms=_blooms(metadata.properties, metadata.schema()),
    )


def codec_of(metadata: TableMetadata) -> str:
    """The codec by Arrow's name."""
    codec = metadata.properties.get(TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT)
    return NO_CODEC if codec.lower() == "uncompressed" else codec.lower()


def _writer_options(metadata: TableMetadata) -> dict[str, object]:
    number, codec = partial(property_as_int, metadata.properties), codec_of(metadata)
    page_rows = number(TableProperties.PARQUET_PAGE_ROW_LIMIT) or TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT
    page_bytes = number(TableProperties.PARQUET_PAGE_SIZE_BYTES)
    options: dict[str, object] = {
        "compression": codec,
        # Decimals as Iceberg's specification wants them: integers up to 18 digits.
        "store_decimal_as_integer": True,
        "data_page_size": page_bytes or TableProperties.PARQUET_PAGE_SIZE_BYTES_DEFAULT,
        "max_rows_per_page": page_rows,
        "write_batch_size": min(page_rows, _ROWS_BETWEEN_LOOKS) if page_bytes else page_rows,
        "dictionary_pagesize_limit": number(TableProperties.PARQUET_DICT_SIZE_BYTES, _DICTIONARY_BYTES),
    }
    if codec != NO_CODEC and pa.Codec.supports_compression_level(codec):
        options["compression_level"] = number(TableProperties.PARQUET_COMPRESSION_LEVEL)
    return options


def _blooms(properties: Mapping[str, str], schema: Schema) -> dict[int, BloomFilter]:
    """A property may name a column that was dropped since, and one with two values needs no filter."""
    max_bytes = property_as_int(
        dict(properties),
        TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES,
        TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES_DEFAULT,
    )
    found: dict[int, BloomFilter] = {}
    for field_id in schema.field_ids:
        column, kind = schema.find_column_name(field_id), schema.find_type(field_id)
        enabled = property_as_bool(dict(properties), f"{_BLOOM_ENABLED}.{column}", False)
        if enabled and kind.is_primitive and not isinstance(kind, BooleanType):
            found[field_id] = BloomFilter(
                _share(properties, f"{_BLOOM_FPP}.{column}", _BLOOM_FPP_DEFAULT), max_bytes or 1
            )
    return found


def _share(properties: Mapping[str, str], key: str, default: float) -> float:
    try:
        share = float(properties.get(key, default))
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(f"Could not parse table property {key} to a number between 0 and 1: {properties[key]}")
    return share


def dictionary_paths(paths: Iterable[str], rows: pa.Table) -> list[str]:
    """Those of the Parquet leaf `paths` that get one, by the first `rows` of the file.

    A dictionary of values that hardly repeat costs a hash of each and is thrown away, or stays and makes the file
    larger: ids, free text and offsets took a quarter of the writing and a sixth of the bytes. Leaves of lists and maps
    always get one, and so does everything where `rows` are few; nothing where there are hardly any.
    """
    if len(rows) < FEW_ROWS:
        return list(paths) if len(rows) > HARDLY_ANY_ROWS else []
    sample = rows.slice(0, SAMPLED_ROWS)
    fields = zip(sample.schema, sample.columns, strict=True)
    without = {path for field, column in fields for path in _distinct(field.name, column.combine_chunks())}
    return [path for path in paths if path not in without]


def _distinct(path: str, column: pa.Array) -> Iterator[str]:
    """The leaves below a column in which most values are different ones."""
    if pa.types.is_struct(column.type):
        for index in range(column.type.num_fields):
            yield from _distinct(f"{path}.{column.type.field(index).name}", column.field(index))
    elif not pa.types.is_nested(column.type) and _count(column) > MOST_DISTINCT * len(column):
        yield path


def _count(column: pa.Array) -> int:
    # Arrow counts no UUIDs, but the bytes that they are.
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    return pc.call_function("count_distinct", [column]).as_py()

"""The rows of a Parquet data file in the columns that its table has now, found by their field ids.

pyiceberg's own scan does so too, but takes lists and maps of structs that are null for empty ones. It is left to files
without ids, which others have added to the table; of these such columns are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import ListType, MapType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.catalog.opening import open_io
from calve.sink_core.iceberg.compat import batches_of
from calve.sink_core.records.columns.arrow import file_schema, iceberg_id, with_values

_ROWS = 16_384
"""Of a batch, at most."""


def rows_by_ids(io: FileIO, metadata: TableMetadata, file: DataFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Batches of the file's rows in the columns of `schema`, which are the table's or some of them, in the file's own
    types; a column that the file lacks is null. No delete may apply to the file.

    Raises TableUnusable, and what storage raises.
    """
    wanted = file_schema(schema)
    with io.new_input(file.file_path).open() as stream, pq.ParquetFile(stream) as parquet:
        found = {iceberg_id(field): field.name for field in parquet.schema_arrow}
        if -1 not in found:
            names = [found[iceberg_id(field)] for field in wanted if iceberg_id(field) in found]
            # A dot would be taken for a path.
            read = None if any("." in name for name in names) else names
            for batch in parquet.iter_batches(_ROWS, columns=read):
                columns = [
                    _picked(batch.column(found[iceberg_id(field)]), field.type)
                    if iceberg_id(field) in found
                    else pa.nulls(len(batch), field.type)
                    for field in wanted
                ]
                yield pa.RecordBatch.from_arrays(columns, names=wanted.names)
            return
    _check_scannable(file, schema)
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    yield from batches_of(scan, FileScanTask(file))


def reader_by_ids(
    catalog: CatalogSettings, table: str, metadata: str, ids: Sequence[int]
) -> Callable[[DataFile], Iterator[pa.RecordBatch]]:
    """`rows_by_ids` in a task, of files of the table whose `metadata` this is, in the columns with these ids.

    Raises as `open_io` does.
    """
    of = TableMetadataUtil.parse_raw(metadata)
    io, schema = open_io(catalog, table, of.location), of.schema()
    return partial(rows_by_ids, io, of, schema=Schema(*map(schema.find_field, ids)))


def _check_scannable(file: DataFile, schema: Schema) -> None:
    for number, field in index_by_id(schema).items():
        kind = field.field_type
        of_structs = (isinstance(kind, ListType) and isinstance(kind.element_type, StructType)) or (
            isinstance(kind, MapType) and isinstance(kind.value_type, StructType)
        )
        if of_structs:
            raise TableUnusable(
                f"{file.file_path} has no field ids, and column {schema.find_column_name(number)} holds structs: "
                "whether one is null or empty can't be told",
                hint="have Spark's rewrite_data_files write the file again; then start this again",
                code=Code.NO_FIELD_IDS,
            )


def _picked(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The array with the fields that structs in `wanted` have, by their ids. Nulls stay, and the types of leaves."""
    if pa.types.is_struct(wanted):
        places = {iceberg_id(field): place for place, field in enumerate(array.type)}
        children = [
            _picked(array.field(places[iceberg_id(field)]), field.type)
            if iceberg_id(field) in places
            else pa.nulls(len(array), field.type)
            for field in wanted
        ]
        fields = [pa.field(field.name, child.type) for field, child in zip(wanted, children, strict=True)]
        absent = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=absent)
    if pa.types.is_large_list(wanted):
        values = _picked(array.values, wanted.value_type)
        kind = pa.large_list if pa.types.is_large_list(array.type) else pa.list_
        return with_values(array, kind(values.type), values)
    if pa.types.is_map(wanted):
        items = _picked(array.items, wanted.item_type)
        kind = pa.map_(array.keys.type, items.type)
        entries = pa.StructArray.from_arrays([array.keys, items], fields=[kind.key_field, kind.item_field])
        return with_values(array, kind, entries)
    return array

"""A data file written again without the rows of given source offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.iceberg.files.kafka_rows import Runs, of_runs
from calve.sink_core.iceberg.files.projection import rows_by_ids
from calve.sink_core.iceberg.files.written import WrittenFile
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.records.columns.arrow import rebuild, unchanged
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN

_PLACES = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`files` hold all rows of the data file at `path` but the `rows` that were of the ranges."""

    path: str
    rows: int
    files: tuple[WrittenFile, ...]


def rewrite_without(
    io: FileIO,
    metadata: TableMetadata,
    file: DataFile,
    runs: Runs,
    file_prefix: str,
    *,
    target_file_size: int | None,
    struct: str | None = KAFKA_COLUMN,
) -> Rewritten | None:
    """Write the file again by the table's current schema and the file's own partition spec; None if it has no such row.

    Which rows these are the column `struct` says, or the columns topic, partition and offset. No delete may apply to
    the file. Memory: a few batches of rows, beside what `TableWriter` gathers.
    """
    taken = sum(
        int(flags.sum()) for _rows, flags in rows_of_file(io, metadata, file, runs, struct=struct, only_places=True)
    )
    if taken == 0:
        return None
    own_spec = metadata.model_copy(update={"default_spec_id": file.spec_id})
    writer = TableWriter(io, own_spec, file_prefix, target_file_size=target_file_size)
    try:
        if taken < file.record_count:
            for rows, flags in rows_of_file(io, metadata, file, runs, struct=struct):
                writer.write(_as_written(rows, writer.schema).filter(pa.array(~flags)))
        return Rewritten(file.file_path, taken, tuple(writer.close()))
    except BaseException:
        writer.abort()
        raise


def rows_of_file(
    io: FileIO, metadata: TableMetadata, file: DataFile, runs: Runs, *, struct: str | None, only_places: bool = False
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
    """Batches of rows by the current schema, or only of the columns that say their places, and a flag per row: whether
    it is of the ranges. No delete may apply to the file.
    """
    schema: Schema = metadata.schema()
    wanted = schema.select(*([struct] if struct else _PLACES)) if only_places else schema
    for rows in rows_by_ids(io, metadata, file, wanted):
        topic, partition, offset = _places(rows, struct)
        yield rows, of_runs(topic, partition, offset, runs)


def _places(rows: pa.RecordBatch, struct: str | None) -> list[pa.Array]:
    if struct is None:
        return [rows.column(name) for name in _PLACES]
    # `flatten` puts the struct's own nulls into its fields.
    column = rows.column(struct)
    parts = dict(zip((f.name for f in column.type), column.flatten(), strict=True))
    return [parts[name] for name in _PLACES]


def _as_written(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types that a writer takes; in files of others lists and texts may have narrower offsets."""
    columns = [rebuild(rows.column(f.name), f.type, _leaf) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _leaf(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    plain = array.storage if isinstance(array, pa.UuidArray) else array
    return unchanged(plain if plain.type == wanted else plain.cast(wanted), wanted)

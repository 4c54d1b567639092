"""Which columns of a Parquet file get a dictionary: those whose values repeat.

A dictionary of values that hardly repeat costs a hash of each and is thrown away, or stays and makes the file larger:
ids, free text and offsets took a quarter of the writing and a sixth of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

SAMPLED_ROWS = 20_000
FEW_ROWS = 1_000
HARDLY_ANY_ROWS = 16
"""A dictionary is a page more for each column, which takes longer to write and to read than as many values."""
MOST_DISTINCT = 0.5


def dictionary_paths(paths: Iterable[str], rows: pa.Table) -> list[str]:
    """Those of the Parquet leaf `paths` that get one, by the first `rows` of the file.

    Leaves of lists and maps always do, and so does everything where `rows` are few; nothing where there are hardly any.
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

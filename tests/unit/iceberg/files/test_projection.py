"""Rows of a data file by the schema of today, by field ids; nulls stay nulls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.files.projection import rows_by_ids
from calve.sink_core.records.columns.arrow import arrow_schema, file_schema, rebuild
from tests.codes import raises

POINT = StructType(NestedField(10, "p", LongType(), required=False), NestedField(11, "q", StringType(), required=False))
THEN = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "s", POINT, required=False),
    NestedField(3, "l", ListType(4, POINT.model_copy(), element_required=False), required=False),
    NestedField(5, "m", MapType(6, StringType(), 7, POINT.model_copy(), value_required=False), required=False),
    NestedField(8, "a.b", ListType(9, LongType(), element_required=False), required=False),
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": {"p": 1, "q": "x"}, "l": [{"p": 1, "q": "x"}, None], "m": [("k", {"p": 2, "q": None})], "a.b": [1]},
    {"id": 2, "s": None, "l": None, "m": None, "a.b": None},
    {"id": 3, "s": {"p": None, "q": None}, "l": [], "m": [], "a.b": []},
    {"id": 4, "s": {"p": 5, "q": "y"}, "l": [{"p": None, "q": "z"}], "m": [("k", None)], "a.b": [None]},
]


def written(path: Path, schema: pa.Schema, rows: list[dict[str, Any]] = ROWS) -> Any:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return SimpleNamespace(file_path=str(path))


def read(file: Any, schema: Schema) -> list[dict[str, Any]]:
    metadata: Any = None
    batches = list(rows_by_ids(PyArrowFileIO(), metadata, file, schema))
    found = [row for batch in batches for row in batch.to_pylist()]
    # As a writer takes them.
    for batch in batches:
        for column, field in zip(batch.columns, arrow_schema(schema), strict=True):
            made = rebuild(column, field.type, lambda array, wanted: array.cast(wanted))
            assert made.to_pylist() == column.to_pylist()
    return found


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read(written(tmp_path / "f.parquet", file_schema(THEN)), THEN) == ROWS


def test_columns_are_those_of_today_at_every_depth(tmp_path: Path) -> None:
    """Renamed, reordered, widened, added and dropped."""
    point = StructType(
        NestedField(12, "new", LongType(), required=False), NestedField(10, "renamed", LongType(), required=False)
    )
    now = Schema(
        NestedField(13, "added", POINT, required=False),
        NestedField(3, "list", ListType(4, point, element_required=False), required=False),
        NestedField(5, "m", MapType(6, StringType(), 7, point.model_copy(), value_required=False), required=False),
        NestedField(2, "s", point.model_copy(), required=False),
        NestedField(1, "id", LongType(), required=False),
    )

    def point_of(found: dict[str, Any] | None) -> dict[str, Any] | None:
        return found and {"new": None, "renamed": found["p"]}

    assert read(written(tmp_path / "f.parquet", file_schema(THEN)), now) == [
        {
            "added": None,
            "list": None if row["l"] is None else [point_of(each) for each in row["l"]],
            "m": None if row["m"] is None else [(key, point_of(value)) for key, value in row["m"]],
            "s": point_of(row["s"]),
            "id": row["id"],
        }
        for row in ROWS
    ]


def test_some_columns_are_read_alone(tmp_path: Path) -> None:
    file = written(tmp_path / "f.parquet", file_schema(THEN))
    assert read(file, THEN.select("id")) == [{"id": row["id"]} for row in ROWS]
    assert read(file, Schema(THEN.find_field(8))) == [{"a.b": row["a.b"]} for row in ROWS]


def test_a_file_without_ids_is_refused_where_a_null_could_not_be_told(tmp_path: Path) -> None:
    plain = pa.schema([field.remove_metadata() for field in file_schema(THEN)])
    with raises(Code.NO_FIELD_IDS, "l"):
        read(written(tmp_path / "f.parquet", plain), Schema(THEN.find_field(3)))

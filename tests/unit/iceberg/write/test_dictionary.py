"""Columns whose values repeat get a dictionary, others don't."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calve.sink_core.iceberg.write.parquet import FEW_ROWS, HARDLY_ANY_ROWS, dictionary_paths

N = 5_000
ROWS = pa.table(
    {
        "id": pa.array(range(N), pa.int64()),
        "country": pa.array([("DE", "FR")[i % 2] for i in range(N)], pa.large_string()),
        "note": pa.array([str(uuid.uuid4()) for _ in range(N)], pa.large_string()),
        "empty": pa.nulls(N, pa.float64()),
        "_kafka": pa.array([{"topic": "t", "offset": i} for i in range(N)]),
        "tags": pa.array([[str(i)] for i in range(N)], pa.large_list(pa.string())),
    }
)
PATHS = ["id", "country", "note", "empty", "_kafka.topic", "_kafka.offset", "tags.list.element"]


def test_what_repeats_gets_a_dictionary() -> None:
    assert dictionary_paths(PATHS, ROWS) == ["country", "empty", "_kafka.topic", "tags.list.element"]


def test_few_rows_are_no_ground_to_judge_by() -> None:
    assert dictionary_paths(PATHS, ROWS.slice(0, FEW_ROWS - 1)) == PATHS


def test_hardly_any_rows_need_no_dictionary() -> None:
    assert dictionary_paths(PATHS, ROWS.slice(0, HARDLY_ANY_ROWS + 1)) == PATHS
    assert dictionary_paths(PATHS, ROWS.slice(0, HARDLY_ANY_ROWS)) == []


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(9, 2),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us", "UTC"),
        pa.binary(16),
        pa.bool_(),
        pa.uuid(),
    ],
)
def test_every_type_can_be_judged(kind: pa.DataType) -> None:
    assert dictionary_paths(["c"], pa.table({"c": pa.nulls(N, kind)})) == ["c"]


def test_the_paths_are_those_of_the_file(tmp_path: Path) -> None:
    """What is left out is plain in the file, and all of it can be read back."""
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS, file, use_dictionary=dictionary_paths(PATHS, ROWS))
    group = pq.ParquetFile(file).metadata.row_group(0)
    encoded = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert {path for path, has in encoded.items() if not has} >= {"id", "note", "_kafka.offset"}
    assert encoded["country"]
    assert pq.read_table(file).equals(ROWS)

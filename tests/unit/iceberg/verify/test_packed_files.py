"""A proof keeps files without what it does not need, and reads them as if it had all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from calve.sink_core.iceberg.files.entries import head_files
from calve.sink_core.iceberg.verify.packed_files import PackedFiles

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "country", StringType()))
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))
LOCATION = "s3://lake/db/t"


def file(path: str, **more: Any) -> DataFile:
    made = DataFile.from_args(
        **{
            "content": DataFileContent.DATA,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": 1,
            "file_size_in_bytes": 7,
            **more,
        }
    )
    made.spec_id = 0
    return made


def packed(*tasks: FileScanTask, location: str = LOCATION) -> PackedFiles:
    files = PackedFiles(location)
    for task in tasks:
        files.append(task)
    return files


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three files of three partitions, each twice."""
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA, partition_spec=BY_COUNTRY)
    for number in range(2):
        rows = [{"id": number, "country": country} for country in ("de", "fr", None)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return table


def test_files_are_those_that_were_given_without_their_metrics(table: Table) -> None:
    given = head_files(table)
    found = packed(*given, location=table.location())
    assert len(found) == len(given) == 6
    for mine, theirs in zip(found, given, strict=True):
        for name in ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"):
            assert getattr(mine.file, name) == getattr(theirs.file, name)
        assert (mine.file.spec_id, mine.residual) == (theirs.file.spec_id, theirs.residual)
        assert isinstance(theirs.file.lower_bounds, Mapping)
        assert mine.file.lower_bounds is None
    assert [task.file.file_path for task in found[-2:]] == [task.file.file_path for task in given[-2:]]


def test_a_path_elsewhere_stays_what_it_is() -> None:
    paths = [f"{LOCATION}/data/a.parquet", "s3://other/s3://lake/db/t/b", "/c", f"{LOCATION}2/d", "s3://lake/ü"]
    assert list(packed(*(FileScanTask(file(path)) for path in paths)).paths()) == paths


def test_what_is_named_often_is_told_with_how_often() -> None:
    paths = ["a", "b", "a", "c", "b", "a"]
    assert packed(*(FileScanTask(file(path)) for path in paths)).named_often() == {"a": 3, "b": 2}
    assert packed().named_often() == {}


def test_deletes_and_other_formats_are_kept() -> None:
    deletes = file("deletes", content=DataFileContent.POSITION_DELETES)
    tasks = [
        FileScanTask(file("a"), {deletes}),
        FileScanTask(file("b")),
        FileScanTask(file("c"), {deletes}),
        FileScanTask(file("d", file_format=FileFormat.ORC)),
    ]
    found = packed(*tasks)
    assert [found[0], found[2], found[3]] == [tasks[0], tasks[2], tasks[3]]
    assert not found[1].delete_files
    assert list(found.paths()) == ["a", "b", "c", "d", "deletes"]

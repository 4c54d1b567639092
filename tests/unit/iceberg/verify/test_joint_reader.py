"""Many small files read together are what pyiceberg reads one by one, whatever became of the table's columns."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType, LongType, MapType, NestedField, StringType, StructType

from calve.sink_core.iceberg.verify import joint_reader as alike
from calve.sink_core.iceberg.verify.files import ReadableFiles
from calve.sink_core.iceberg.verify.joint_reader import in_groups
from calve.sink_core.tables.proof import Evidence
from tests import support

COLUMNS = ("id", "n", "text", "counts", "place")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", IntegerType(), required=False),
    NestedField(3, "text", StringType(), required=False),
    NestedField(4, "counts", MapType(5, StringType(), 6, LongType()), required=False),
    NestedField(7, "place", StructType(NestedField(8, "topic", StringType(), required=False)), required=False),
)


@pytest.fixture
def catalog(tmp_path: Path) -> Generator[Catalog]:
    with closing(support.open_catalog(tmp_path, "alike")) as catalog:
        catalog.create_namespace("db")
        yield catalog


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table("db.small", SCHEMA)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that pyiceberg was asked to read."""
    asked: list[str] = []
    to_record_batches = ArrowScan.to_record_batches

    def noted(self: ArrowScan, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
        tasks = list(tasks)
        asked.extend(task.file.file_path for task in tasks)
        return to_record_batches(self, tasks)

    monkeypatch.setattr(ArrowScan, "to_record_batches", noted)
    return asked


def fill(table: Table, files: int, **more: Any) -> None:
    """A file of one row at a time."""
    for number in range(files):
        row = {"id": number, "n": number, "text": f"t{number}", "counts": [("a", number)], "place": {"topic": "x"}}
        known = table.schema().as_arrow()
        table.append(pa.Table.from_pylist([{k: v for k, v in (row | more).items() if k in known.names}], schema=known))


def tasks(table: Table) -> list[FileScanTask]:
    return list(table.scan().plan_files())


def rows(table: Table, evidence: Evidence | None = None) -> list[dict[str, Any]]:
    files = ReadableFiles(table, "db.small", tasks(table), evidence or Evidence())
    return in_order(row for batch in files.read(COLUMNS) for row in batch.to_pylist())


def by_pyiceberg(table: Table) -> list[dict[str, Any]]:
    known = [name for name in COLUMNS if name in table.schema().as_arrow().names]
    return in_order(table.scan().select(*known).to_arrow().to_pylist())


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


def test_files_that_have_the_tables_columns_are_none_of_pyicebergs_work(table: Table, alone: list[str]) -> None:
    fill(table, 12)
    found = rows(table)
    assert alone == []
    assert found == by_pyiceberg(table)
    assert sorted(row["id"] for row in found) == list(range(12))


def test_what_became_of_columns_is_left_to_pyiceberg(table: Table, alone: list[str]) -> None:
    fill(table, 2)
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.rename_column("text", "words")
        update.delete_column("id")
    with table.update_schema() as update:
        # Of the old name, and not the old column.
        update.add_column("id", LongType())
        update.add_column("text", StringType())
    old = {task.file.file_path for task in tasks(table)}
    fill(table, 2, n=2**40)
    found = rows(table)
    assert set(alone) == old
    assert found == by_pyiceberg(table)
    assert sorted(row["n"] for row in found) == [0, 1, 2**40, 2**40]
    assert [row["id"] for row in found].count(None) == 2


def test_a_broken_file_is_named_and_the_others_are_read(table: Table) -> None:
    fill(table, 3)
    broken = tasks(table)[1].file.file_path
    Path(broken.removeprefix("file://")).write_bytes(b"PAR1 no more")
    evidence = Evidence()
    assert len(rows(table, evidence)) == 2
    [violation] = evidence.violations
    assert (violation.kind, violation.message.split()[0]) == ("file-unreadable", broken)


@pytest.mark.parametrize("read_whole", [0, 2**18])
def test_files_of_other_writers_strings_are_alike(
    table: Table, alone: list[str], monkeypatch: pytest.MonkeyPatch, read_whole: int
) -> None:
    """Small strings and large ones are the same to Iceberg, and Arrow does not join them."""
    monkeypatch.setattr(alike, "READ_WHOLE", read_whole)
    fill(table, 3)
    file = tasks(table)[1].file.file_path.removeprefix("file://")
    found = pq.read_table(file)
    texts = found.schema.get_field_index("text")
    kind = pa.string() if pa.types.is_large_string(found.schema.field(texts).type) else pa.large_string()
    pq.write_table(found.cast(found.schema.set(texts, found.schema.field(texts).with_type(kind))), file)
    assert sorted(row["text"] for row in rows(table)) == ["t0", "t1", "t2"]
    assert alone == []


def test_a_group_is_bounded_and_files_with_deletes_are_alone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(table, 5)
    files = tasks(table)
    files[2].delete_files.add(files[0].file)
    assert sorted(map(len, in_groups(files))) == [1, 4]
    monkeypatch.setattr(alike, "FILES_AT_ONCE", 2)
    assert sorted(map(len, in_groups(files))) == [1, 2, 2]
    monkeypatch.setattr(alike, "BYTES_AT_ONCE", 1)
    assert [len(group) for group in in_groups(files)] == [1] * 5

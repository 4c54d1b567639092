"""Files that hold rows of source offsets are found by their metrics, written again without these rows, and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog.metadata import without_history
from calve.sink_core.iceberg.files.kafka_rows import runs_of
from calve.sink_core.iceberg.files.manifests import write_manifest
from calve.sink_core.iceberg.format.target import IcebergTarget
from calve.sink_core.iceberg.replace.head_files import HeadFile, files_holding, replacement
from calve.sink_core.iceberg.replace.tasks import rows_of_runs, written_without
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, kafka_array, kafka_field
from calve.sink_core.tables.internal import DEAD_LETTER_SCHEMA, DeadLetter, dead_letter_rows
from tests import support
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import attempt_of, land, metadata_path
from tests.unit.tables.log.build import TABLE, TOPIC

WITH_PLACES = Schema(NestedField(1, "id", LongType()), kafka_field(2))
OFFSETS = ((0, 1, 2, 3), (10, 11))
"""Of the rows in each file."""


def created(catalog: Catalog, schema: Schema, batches: list[pa.RecordBatch]) -> Table:
    catalog.create_namespace(TABLE.partition(".")[0])
    table = catalog.create_table(TABLE, schema)
    for rows in batches:
        writer = TableWriter(table.io, table.metadata, "calve-b")
        writer.write(rows)
        manifest = write_manifest(table.io, table.metadata, 0, writer.close(), metadata_path(table, "m"))
        land(table, attempt_of(table, own(2), manifest))
    return table


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Rows whose ids are their offsets."""
    return created(catalog, WITH_PLACES, [_rows(offsets) for offsets in OFFSETS])


@pytest.fixture
def letters(catalog: Catalog) -> Table:
    made = [[DeadLetter("bad", "fit", TOPIC, 0, at, -1, None, b"x", None) for at in offsets] for offsets in OFFSETS]
    return created(catalog, DEAD_LETTER_SCHEMA, [dead_letter_rows("b1", each) for each in made])


def _rows(offsets: tuple[int, ...]) -> pa.RecordBatch:
    zeros = np.zeros(len(offsets), np.int64)
    places = kafka_array([TOPIC], zeros, zeros.astype(np.int32), np.array(offsets, np.int64), zeros)
    return pa.RecordBatch.from_pydict({"id": pa.array(offsets, pa.int64()), KAFKA_COLUMN: places})


def asked(*spans: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(TOPIC, 0, start, end) for start, end in spans]


def told(table: Table, settings: CatalogSettings) -> IcebergTarget:
    """As tasks have it."""
    return IcebergTarget(TABLE, without_history(table.metadata), settings, 2**20)


@pytest.fixture
def settings(catalog_dir: Path) -> CatalogSettings:
    return CatalogSettings("lake", {"type": "sql", **support.catalog_properties(catalog_dir)}, {})


def test_files_are_found_by_the_offsets_of_their_rows(table: Table) -> None:
    first, last = files_holding(table, TABLE, asked((0, 99)), struct=KAFKA_COLUMN)
    assert sorted((first.rows, last.rows)) == [2, 4]
    assert all(file.size and file.writable for file in (first, last))
    (found,) = files_holding(table, TABLE, asked((3, 10)), struct=KAFKA_COLUMN)
    assert found.rows == 4
    assert files_holding(table, TABLE, asked((4, 10)), struct=KAFKA_COLUMN) == ()


def test_a_file_whose_partition_column_is_gone_is_not_writable(table: Table) -> None:
    with table.update_spec() as spec:
        spec.add_identity("id")
    table.append(pa.Table.from_batches([_rows((20,))]))
    with table.update_spec() as spec:
        spec.remove_field("id")
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("id")
    (file,) = files_holding(table, TABLE, asked((20, 21)), struct=KAFKA_COLUMN)
    assert (file.spec_id, file.writable) == (1, False)


def test_a_task_writes_files_again_without_the_rows(table: Table, settings: CatalogSettings) -> None:
    ranges = asked((1, 3), (50, 60))
    files = files_holding(table, TABLE, asked((0, 99)), struct=KAFKA_COLUMN)
    rewritten = written_without(told(table, settings), files, runs_of(ranges), "calve-r1")
    assert [each.rows for each in rewritten] == [2]
    made = replacement("r1", TABLE, table, 7, files, rewritten)
    assert (made.base_snapshot_id, made.rows) == (7, 2)
    assert [(each.files, each.rows) for each in (*made.gone, *made.kept)] == [(1, 4), (1, 2)]
    land(table, attempt_of(table, own(4), *made.kept, gone=made.gone))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 3, 10, 11]


def test_a_task_reads_the_rows_and_no_others(letters: Table, settings: CatalogSettings) -> None:
    ranges = asked((2, 11))
    files: tuple[HeadFile, ...] = files_holding(letters, TABLE, ranges, struct=None)
    batches = rows_of_runs(told(letters, settings), files, runs_of(ranges))
    assert sorted(at for batch in batches for at in batch.column("offset").to_pylist()) == [2, 3, 10]

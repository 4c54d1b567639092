"""Rows of a table's head, filtered or of its last commits only, and of files that no snapshot names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.read.rows import all_rows, rows_added_since, rows_named, rows_where
from tests.codes import raises
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import World, attempt_of, land, manifest_of
from tests.unit.tables.log.build import TABLE


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two files, of a commit each."""
    world = World.create(catalog)
    for stored, ids in enumerate(((1, 2, 3), (4, 5)), 2):
        land(world.table, attempt_of(world.table, own(stored), manifest_of(world.table, *ids)))
    return world.table


def ids(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return sorted(value for batch in batches for value in batch.column("id").to_pylist())


def test_all_rows_of_the_head(table: Table) -> None:
    assert ids(all_rows(table, ["id"]).to_batches()) == [1, 2, 3, 4, 5]


def test_rows_are_those_that_meet_every_condition(table: Table) -> None:
    assert ids(rows_where(table, ["id"])) == [1, 2, 3, 4, 5]
    assert ids(rows_where(table, ["id"], at_least={"id": 3})) == [3, 4, 5]
    assert ids(rows_where(table, ["id"], equal={"id": 4}, at_least={"id": 3})) == [4]
    assert ids(rows_where(table, ["id"], equal={"id": 1}, at_least={"id": 3})) == []


def test_rows_are_left_out_whose_commit_is_older(table: Table) -> None:
    first, last = (snapshot.timestamp_ms for snapshot in table.metadata.snapshots)
    assert ids(rows_added_since(table, ["id"], first)) == [1, 2, 3, 4, 5]
    assert ids(rows_added_since(table, ["id"], last)) == [4, 5]
    assert ids(rows_added_since(table, ["id"], last + 1)) == []


def test_rows_that_left_the_head_are_not_read_though_their_commit_is_young(table: Table) -> None:
    table.delete("id >= 4")
    assert ids(rows_added_since(table, ["id"], 0)) == [1, 2, 3]


def test_a_table_without_snapshots_has_no_rows(catalog: Catalog) -> None:
    table = World.create(catalog).table
    assert all_rows(table, ["id"]).num_rows == 0
    assert ids(rows_where(table, ["id"])) == ids(rows_added_since(table, ["id"], 0)) == []


def test_files_that_no_snapshot_names_are_read_some_rows_at_a_time(table: Table) -> None:
    manifests = [manifest_of(table, 7, 8, 9), manifest_of(table, 10)]
    batches = list(rows_named(table, manifests, at_once=2))
    assert ids(batches) == [7, 8, 9, 10]
    assert [len(batch) for batch in batches] == [2, 1, 1]


def test_a_file_that_is_gone_is_told_with_what_was_read(table: Table) -> None:
    manifest = manifest_of(table, 7)
    table.io.delete(manifest.path)
    with raises(Code.METADATA_GONE, TABLE):
        list(rows_named(table, [manifest], at_once=2))

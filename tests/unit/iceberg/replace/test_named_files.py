"""Files that manifests name: those that are gone, those that the head has already, and copies of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.iceberg.replace.named_files import copied, files_gone, files_in_head
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import World, attempt_of, ids_of, land, manifest_of


@pytest.fixture
def world(catalog: Catalog) -> World:
    return World.create(catalog)


def test_files_that_are_gone_are_named_and_those_of_a_manifest_that_is_gone_are_not_looked_for(world: World) -> None:
    table = world.table
    whole, emptied, lost = (manifest_of(table, number) for number in range(3))
    assert list(files_gone(table, [whole, emptied, lost])) == []
    (entry,) = entries_of(table.io, emptied)
    table.io.delete(entry.data_file.file_path)
    table.io.delete(lost.path)
    assert list(files_gone(table, [whole, emptied, lost])) == [entry.data_file.file_path, lost.path]


def test_files_that_the_head_names_under_other_manifests_are_in_it(world: World) -> None:
    table = world.table
    mine, other = manifest_of(table, 1), manifest_of(table, 2)
    assert files_in_head(table, [mine]) == []
    land(table, attempt_of(table, own(2), mine))
    (entry,) = entries_of(table.io, mine)
    elsewhere = replace(mine, path=f"{mine.path}.copy")
    with table.io.new_output(elsewhere.path).create() as stream:
        stream.write(table.io.new_input(mine.path).open().read())
    assert files_in_head(table, [other]) == []
    assert files_in_head(table, [elsewhere, other]) == [entry.data_file.file_path]


def test_rows_are_copied_by_the_names_of_their_columns(world: World) -> None:
    old = world.table
    manifests = [manifest_of(old, 1, 2), manifest_of(old, 3)]
    name = "air.again"
    again = world.catalog.create_table(
        name, Schema(NestedField(1, "other", StringType()), NestedField(2, "id", LongType()))
    )
    made = copied(again, manifests, "calve-copy")
    assert [(each.files, each.rows) for each in made] == [(1, 3)]
    land(again, attempt_of(again, own(2), *made))
    assert ids_of(again) == [1, 2, 3]
    assert again.scan().to_arrow()["other"].null_count == 3


def test_of_no_manifests_nothing_is_written(world: World) -> None:
    assert copied(world.table, [], "calve-copy") == []

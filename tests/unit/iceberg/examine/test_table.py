"""What a table says of itself: its totals, who feeds it, whether delete files stand beside its data files."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.commit.replace import live_files
from calve.sink_core.iceberg.examine.table import (
    check_usable,
    feeding_pipelines,
    has_delete_files,
    load_viewed,
    totals,
)
from calve.sink_core.tables.format.lake import Totals
from tests.codes import raises
from tests.unit.iceberg.commit.build import KEYS, own
from tests.unit.iceberg.commit.on_catalog import TAG, World, attempt_of, land, manifest_of, row_deletes
from tests.unit.tables.log.build import TABLE


@pytest.fixture
def world(catalog: Catalog) -> World:
    return World.create(catalog)


def test_a_table_is_loaded_with_its_view_or_is_not_there(world: World) -> None:
    land(world.table, attempt_of(world.table, own(7), manifest_of(world.table, 1)))
    loaded = load_viewed(world.catalog, TABLE, tag=TAG, keys=KEYS)
    assert loaded is not None
    assert (loaded[1].table, loaded[1].stored_offset) == (TABLE, 7)
    world.catalog.drop_table(TABLE)
    assert load_viewed(world.catalog, TABLE, tag=TAG, keys=KEYS) is None


def test_totals_are_those_that_the_head_counts(world: World) -> None:
    assert totals(world.table, world.view) == Totals(0, 0, 0, versions=0, head=None, valid_through_ms=None)
    manifests = [manifest_of(world.table, 1, 2), manifest_of(world.table, 3)]
    land(world.table, attempt_of(world.table, own(2), *manifests))
    view, size = world.view, sum(each.data_bytes for each in manifests)
    through_ms = own(2).valid_through_ms
    assert totals(world.table, view) == Totals(3, 2, size, 1, str(view.head), through_ms)


def test_beside_deletes_nobody_knows_the_rows_without_reading(world: World) -> None:
    land(world.table, attempt_of(world.table, own(2), manifest_of(world.table, 1, 2)))
    assert not has_delete_files(world.table, TABLE)
    table = world.table
    land(table, attempt_of(table, own(4), row_deletes(table, live_files(table)[0], 0)))
    assert has_delete_files(world.table, TABLE)
    assert totals(world.table, world.view).rows is None


def test_pipelines_are_told_by_their_tags(world: World) -> None:
    assert feeding_pipelines(world.table) == frozenset()
    land(world.table, attempt_of(world.table, own(2), manifest_of(world.table, 1)))
    head = world.view.head
    assert head is not None
    world.table.manage_snapshots().create_tag(head, "release").create_tag(head, "calve-other").commit()
    assert feeding_pipelines(world.table) == {TAG, "calve-other"}


def test_a_table_that_cannot_be_written_is_told_with_its_name(world: World) -> None:
    check_usable(world.table, TABLE)
    with world.table.transaction() as change:
        change.set_properties({"write.format.default": "orc"})
    with raises(Code.NOT_PARQUET, TABLE, "write.format.default", "orc"):
        check_usable(world.table, TABLE)

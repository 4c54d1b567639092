"""What a table must still have: the files of the tagged snapshot where its ancestry is cut, and specs and schemas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.control.events import Logged
from calve.sink_core.error_codes.tables import SPEC_GONE
from calve.sink_core.iceberg.commit.preconditions import check_still_there, holds_tagged_files
from calve.sink_core.tables.log.events import DataWritten
from tests.codes import raises
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import World, attempt_of, land, look, manifest_of


@pytest.fixture
def world(catalog: Catalog) -> World:
    return World.create(catalog)


def held(table: Table) -> bool:
    return holds_tagged_files(table, look(table))


def test_the_files_of_the_tagged_snapshot_are_there_beside_others(world: World) -> None:
    table = world.table
    land(table, attempt_of(table, own(2), manifest_of(table, 1), manifest_of(table, 2)))
    world.append_foreign(100)
    assert held(world.table)


def test_a_table_that_lost_one_of_them_does_not_hold_them(world: World) -> None:
    """Of a commit half of which is gone nobody may say that the table has it."""
    table = world.table
    land(table, attempt_of(table, own(2), manifest_of(table, 1), manifest_of(table, 2)))
    world.table.delete("id = 1")
    assert world.ids() == [2]
    assert not held(world.table)


def test_a_tagged_snapshot_that_added_nothing_proves_nothing(world: World) -> None:
    """The answer to a finding: whatever the head is, it has all of no files."""
    land(world.table, attempt_of(world.table, own(2), manifest_of(world.table, 1)))
    land(world.table, attempt_of(world.table, own(4)))
    world.append_foreign(100)
    assert not held(world.table)


def test_a_table_without_a_head_holds_nothing(world: World) -> None:
    assert not held(world.table)


def pending(event: DataWritten) -> list[Logged[DataWritten]]:
    return [Logged(0, event)]


def test_files_of_a_spec_that_was_removed_are_not_committed(world: World) -> None:
    """Nobody could read a table whose manifests name a spec that it does not have."""
    event = world.event("b1", 1)
    check_still_there(world.table, pending(event))
    of_another = replace(event, manifests=(replace(event.manifests[0], spec_id=7),))
    with raises(SPEC_GONE, 7, 0, "[0]"):
        check_still_there(world.table, pending(of_another))


def test_files_of_a_schema_that_was_removed_are_not_committed(world: World) -> None:
    """Its columns could stand for others by then."""
    event = world.event("b1", 1)
    with raises(SPEC_GONE, 0, 5, "[0]"):
        check_still_there(world.table, pending(replace(event, schema_id=5)))

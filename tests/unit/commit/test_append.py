"""What the swap of a commit asserts: each case is what somebody did between the commit's check and its swap."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from tests.unit.commit.build import own
from tests.unit.commit.on_catalog import World, attempt_of, ids_of, land, manifest_of


@pytest.fixture
def world(catalog: Catalog) -> World:
    """One batch of ours is in the table."""
    world = World.create(catalog)
    land(world.table, attempt_of(world.table, own(2), manifest_of(world.table, 1, 2)))
    return world


def test_rows_that_somebody_appended_meanwhile_are_not_lost(world: World) -> None:
    late = attempt_of(world.table, own(4), manifest_of(world.table, 3))
    world.append_foreign(100)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        land(world.table, late)
    assert world.ids() == [1, 2, 100]


def test_what_was_rolled_back_after_another_coordinator_took_it_in_does_not_come_back_unasked(world: World) -> None:
    """The head is again where it was; only the tag tells of the commit in between."""
    late = attempt_of(world.table, own(4), manifest_of(world.table, 3))
    head = world.view.head
    assert head is not None
    land(world.table, attempt_of(world.table, own(4), manifest_of(world.table, 3)))
    world.roll_back(head)
    assert world.view.head == head
    with pytest.raises(CommitFailedException, match="tag calve-flights has changed"):
        land(world.table, late)
    assert world.ids() == [1, 2]


def test_files_for_a_table_that_was_dropped_do_not_go_into_the_one_of_its_name(catalog: Catalog) -> None:
    """Nobody has written to either: both have no head and no tag."""
    world = World.create(catalog)
    late = attempt_of(world.table, own(2), manifest_of(world.table, 1))
    world.recreate()
    with pytest.raises(CommitFailedException, match="UUID"):
        land(world.table, late)
    assert world.table.metadata.snapshots == []


def test_what_is_there_stays_and_what_comes_is_added(world: World) -> None:
    world.append_foreign(100)
    assert ids_of(land(world.table, attempt_of(world.table, own(4), manifest_of(world.table, 3)))) == [1, 2, 3, 100]

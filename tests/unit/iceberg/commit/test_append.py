"""What the swap of a commit asserts: each case is what somebody did between the commit's check and its swap."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import TAG, World, attempt_of, ids_of, land, manifest_of


@pytest.fixture
def world(catalog: Catalog) -> World:
    """One batch of ours is in the table."""
    world = World.create(catalog)
    land(world.table, attempt_of(world.table, own(2), manifest_of(world.table, 1, 2)))
    return world


def test_rows_that_somebody_appended_before_our_first_commit_are_not_lost(catalog: Catalog) -> None:
    """Later ones are in order by their sequence numbers as well; a first snapshot has no parent."""
    world = World.create(catalog)
    late = attempt_of(world.table, own(2), manifest_of(world.table, 1))
    world.append_foreign(100)
    with pytest.raises(CommitFailedException, match="branch main was created concurrently"):
        land(world.table, late)
    assert world.ids() == [100]


def test_what_was_rolled_back_meanwhile_does_not_come_back_unasked(world: World) -> None:
    """The commit was built on what is no longer there; no snapshot was added since."""
    first = world.view.head
    assert first is not None
    world.append_foreign(100)
    late = attempt_of(world.table, own(4), manifest_of(world.table, 3))
    world.roll_back(first)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        land(world.table, late)
    assert world.ids() == [1, 2]


def test_a_commit_that_rests_on_another_tag_than_there_is_does_not_land(world: World) -> None:
    """Somebody had moved the tag back, and put it right since: what lies between the two is in the table."""
    first = world.view.tag
    second = land(world.table, attempt_of(world.table, own(4), manifest_of(world.table, 3))).current_snapshot()
    assert first is not None
    assert second is not None
    world.table.manage_snapshots().create_tag(first, TAG).commit()
    late = attempt_of(world.table, own(4), manifest_of(world.table, 3))
    world.table.manage_snapshots().create_tag(second.snapshot_id, TAG).commit()
    with pytest.raises(CommitFailedException, match=f"tag {TAG} has changed"):
        land(world.table, late)
    assert world.ids() == [1, 2, 3]


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

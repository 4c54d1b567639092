"""Changes merged on a staging branch: they become the head only where nothing else did, while their files are safe."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.changes import merging as parts
from calve.sink_core.iceberg.commit.merge import LONGEST_S, MERGES, Merging
from calve.sink_core.tables.history.shares import Events
from tests.codes import finding, raises
from tests.pipelines import reached
from tests.unit.iceberg.commit.on_catalog import TAG, CommitTable, World, manifest_of, rows, through
from tests.unit.tables.log.build import TABLE, complete


class Killed(BaseException):
    """Nothing that is done on an error happens."""


def killed() -> None:
    raise Killed


@dataclass
class Changes:
    """Stands for Spark, which puts the changes of batches into a branch: here each brings rows. Before it is done,
    what is in `meanwhile` happens, once.
    """

    brings: dict[str, list[int]]
    meanwhile: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    done: int = 0

    def merge(self, table: Table, branch: str, events: Events) -> None:
        ids = [number for logged in events for number in self.brings[logged.event.batch_id]]
        table.catalog.load_table(table.name()).append(rows(*ids), branch=branch)
        self.done += 1
        if self.meanwhile:
            self.meanwhile.pop()()


@pytest.fixture
def world(catalog: Catalog) -> World:
    world = World.create(catalog)
    world.publish("b1", 1)
    world.commit()
    return world


def publish_changes(world: World, batch_id: str) -> None:
    keys = replace(manifest_of(world.table, 1), content=int(ManifestContent.DELETES))
    world.log.events += [replace(world.event(batch_id), manifests=(keys,), changes=1), complete(batch_id)]


def merging(changes: Changes) -> Merging:
    return Merging(frozenset({TABLE}), changes.merge)


def refs(world: World) -> set[str]:
    return set(world.table.metadata.refs)


def test_what_was_merged_becomes_the_head_and_its_branch_goes(world: World) -> None:
    publish_changes(world, "b2")
    done = world.commit(merging(Changes({"b2": [2]})))
    assert (done.landed, done.batches, done.conflicts) == (True, ("b2",), 0)
    assert world.ids() == [1, 2]
    assert refs(world) == {"main", TAG}


def test_a_merge_that_took_too_long_is_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written at its beginning may be taken for orphans by then, and the table would name them."""
    real, slept = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + slept[0])
    changes = Changes({"b2": [2]}, [lambda: slept.append(slept.pop() + LONGEST_S)])
    publish_changes(world, "b2")
    done = world.commit(merging(changes))
    assert (changes.done, done.conflicts, world.ids()) == (2, 1, [1, 2])
    assert refs(world) == {"main", TAG}


def test_rows_that_somebody_appended_during_a_merge_are_not_lost(world: World) -> None:
    changes = Changes({"b2": [2]}, [lambda: world.append_foreign(100)])
    publish_changes(world, "b2")
    done = world.commit(merging(changes))
    assert (changes.done, done.conflicts, world.ids()) == (2, 1, [1, 2, 100])


def test_what_was_rolled_back_just_before_the_head_was_moved_does_not_come_back_unasked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look at the table is over, and the call in progress."""
    before = world.view.head
    assert before is not None
    world.publish("b2", 2)
    world.commit()
    changes, to = Changes({"b3": [3]}), [before]
    publish_changes(world, "b3")

    def edge(real: CommitTable, table: Table, given: Any) -> object:
        if changes.done and to:
            world.roll_back(to.pop())
        return real(table, *given)

    through(world.catalog, monkeypatch, edge)
    with raises(finding("table-rolled-back")):
        world.commit(merging(changes))
    assert (changes.done, world.ids()) == (1, [1])


def test_what_waited_beside_changes_and_is_not_merged_is_taken_in_as_well(world: World) -> None:
    """Rows that were appended first, changes behind them: two commits, and each stores how far it went."""
    world.publish("b2", 2)
    publish_changes(world, "b3")
    done = world.commit(merging(Changes({"b3": [3]})))
    assert done.batches == ("b2", "b3")
    assert world.ids() == [1, 2, 3]


def test_what_one_merge_does_not_take_has_merges_of_its_own_and_stays_where_a_later_one_dies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_BATCHES", 2)
    for number in range(2, 7):
        publish_changes(world, f"b{number}")
    changes = Changes({f"b{number}": [number] for number in range(2, 7)})
    with pytest.raises(Killed), reached("merge.after-changes", killed, skip=1):
        world.commit(merging(changes))
    assert (changes.done, world.ids()) == (2, [1, 2, 3])
    done = world.commit(merging(changes))
    assert done.batches == ("b4", "b5", "b6")
    assert (changes.done, world.ids()) == (4, [1, 2, 3, 4, 5, 6])
    assert TAG in refs(world)


def test_a_merge_that_others_always_overtake_gives_up_and_leaves_no_branch(world: World) -> None:
    publish_changes(world, "b2")
    changes = Changes({"b2": [2]}, [lambda: world.append_foreign(100)] * MERGES)
    with raises(Code.MERGE_RACES_LOST, MERGES):
        world.commit(merging(changes))
    assert world.ids() == [1, *[100] * MERGES]
    assert refs(world) == {"main", TAG}

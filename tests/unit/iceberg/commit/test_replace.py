"""A replay at its commit: it is committed only if the table still is what it was written for, else rows come twice,
come back, or are lost.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.commit.replace import ReplaceRows, has_deletes, live_files
from calve.sink_core.iceberg.files.entries import live_entries
from calve.sink_core.iceberg.files.manifests import entries_of, write_manifest_of
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.range_parts import Replaces
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import (
    World,
    attempt_of,
    land,
    manifest_of,
    metadata_path,
    plan_of,
    row_deletes,
)
from tests.unit.tables.log.build import manifest


@pytest.fixture
def world(catalog: Catalog) -> World:
    """Two batches of ours, a file each: ids 1 to 3, and 4."""
    world = World.create(catalog)
    for stored, ids in ((2, (1, 2, 3)), (4, (4,))):
        land(world.table, attempt_of(world.table, own(stored), manifest_of(world.table, *ids)))
    return world


def ids_in(path: str) -> list[int]:
    return pq.read_table(path.removeprefix("file://"))["id"].to_pylist()


def with_any(world: World, *ids: int) -> list[DataFile]:
    """The files of the head that hold any of these rows."""
    return [file for file in live_files(world.table) if not set(ids).isdisjoint(ids_in(file.file_path))]


def replay(world: World, batch_id: str, *again: int) -> DataWritten:
    """Rows that were read again. The files that hold them are to go, and their other rows lie in a new one."""
    table, gone = world.table, with_any(world, *again)
    kept = [number for file in gone for number in ids_in(file.file_path) if number not in again]
    replaces = Replaces(
        base_snapshot_id=table.metadata.current_snapshot_id,
        gone=(write_manifest_of(table.io, table.metadata, 0, gone, metadata_path(table, "gone")),) if gone else (),
        kept=(manifest_of(table, *kept),) if kept else (),
    )
    return world.event(batch_id, *again, replaces=replaces)


def take_in(world: World, *events: DataWritten) -> tuple[str, ...]:
    """Commit what fits of the events; returns what was dropped."""
    plan = ReplaceRows().choose(plan_of(world.table, [Logged(at, event) for at, event in enumerate(events)]))
    fits = [logged.event for logged in plan.events]
    added = [ref for event in fits for ref in event.added]
    gone = [ref for event in fits if event.replaces for ref in event.replaces.gone]
    land(world.table, attempt_of(world.table, own(9), *added, gone=gone))
    return plan.dropped


def test_a_replay_takes_the_place_of_its_rows_and_what_waits_comes_with_it(world: World) -> None:
    assert take_in(world, world.event("b3", 5), replay(world, "r1", 2)) == ()
    assert world.ids() == [1, 2, 3, 4, 5]


def test_files_that_are_there_again_after_a_roll_back_keep_their_rows_to_themselves(world: World) -> None:
    """The head that the replay was written for lacked them, so it takes nothing out: they would come twice."""
    head = world.view.head
    assert head is not None
    world.table.delete("id <= 3")
    event = replay(world, "r1", 1, 2, 3)
    assert event.replaces is not None
    assert event.replaces.gone == ()
    world.roll_back(head)
    assert take_in(world, event) == ("r1",)
    assert world.ids() == [1, 2, 3, 4]


def test_rows_that_somebody_deleted_meanwhile_do_not_come_back(world: World) -> None:
    """By a delete file: the data file, of which the replay has a copy, is still there."""
    event = replay(world, "r1", 2)
    land(world.table, attempt_of(world.table, own(4), row_deletes(world.table, with_any(world, 3)[0], 2)))
    assert world.ids() == [1, 2, 4]
    assert take_in(world, event) == ("r1",)
    assert world.ids() == [1, 2, 4]


def test_rows_of_a_file_that_somebody_rewrote_meanwhile_are_not_doubled(world: World) -> None:
    """Of the two files that are to go one has gone."""
    event = replay(world, "r1", 3, 4)
    world.table.delete("id = 1")
    assert take_in(world, event) == ("r1",)
    assert world.ids() == [2, 3, 4]


@pytest.mark.parametrize("lost", ["manifest", "rows", "kept rows"])
def test_a_replay_whose_own_files_are_gone_takes_nothing_out(world: World, lost: str) -> None:
    """What it takes out can't be had back."""
    event = replay(world, "r1", 2)
    assert event.replaces is not None
    rows, kept = event.manifests[0], event.replaces.kept[0]
    file = {
        "manifest": rows.path,
        "rows": entries_of(world.table.io, rows)[0].data_file.file_path,
        "kept rows": entries_of(world.table.io, kept)[0].data_file.file_path,
    }[lost]
    Path(file.removeprefix("file://")).unlink()
    assert take_in(world, event) == ("r1",)
    assert world.ids() == [1, 2, 3, 4]


def test_of_two_replays_the_first_is_dropped(world: World) -> None:
    """The second was planned when the table did not have the first: both together would double their rows."""
    assert take_in(world, replay(world, "r1", 1), replay(world, "r2", 4)) == ("r1",)
    assert world.ids() == [1, 2, 3, 4]


def test_a_replay_beside_deletes_is_dropped(world: World) -> None:
    """They may be for rows that it has written again."""
    keys = manifest("keys.avro", content=int(ManifestContent.DELETES))
    changing = Logged(0, replace(world.event("b3"), manifests=(keys,)))
    plan = ReplaceRows().choose(plan_of(world.table, [changing, Logged(1, replay(world, "r1", 2))]))
    assert (list(plan.events), plan.dropped) == ([changing], ("r1",))


def test_a_file_that_stays_is_as_old_as_it_was(world: World) -> None:
    """A delete is for what is older: where a file grew younger, rows that were deleted by key would be back."""
    files = with_any(world, 1, 4)
    table = world.table
    together = write_manifest_of(table.io, table.metadata, 0, files, metadata_path(table, "together"))
    gone = [write_manifest_of(table.io, table.metadata, 0, [f], metadata_path(table, "gone")) for f in files]
    land(table, attempt_of(table, own(6), together, gone=gone))
    world.append_foreign(100)
    assert take_in(world, replay(world, "r1", 4)) == ()
    assert world.ids() == [1, 2, 3, 4, 100]
    head = world.table.current_snapshot()
    assert head is not None
    numbers = {
        tuple(ids_in(entry.data_file.file_path)): entry.sequence_number
        for each in head.manifests(world.table.io)
        for entry in live_entries(world.table.io, each)
    }
    assert numbers == {(1, 2, 3): 3, (100,): 4, (4,): 5}


@pytest.mark.parametrize(
    ("added", "existing", "found"),
    [(1, 0, True), (0, 1, True), (0, 0, False), (None, None, True)],
    ids=["new", "carried over", "all taken out", "not counted"],
)
def test_a_manifest_of_deletes_counts_while_it_names_any(added: int | None, existing: int | None, found: bool) -> None:
    listed = ManifestFile.from_args(
        manifest_path="m.avro",
        content=ManifestContent.DELETES,
        added_files_count=added,
        existing_files_count=existing,
    )
    assert has_deletes([listed]) == found

"""Which files of a table nobody needs: none that a commit which sleeps may still name, and none that an event names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.files.manifests import entries_of, rewritten_name, rewritten_prefix
from calve.sink_core.iceberg.maintenance.orphans import (
    Listed,
    known_of_snapshots,
    list_files,
    locations_of_all,
    may_still_land,
    named_by_events,
    note_looked_at,
    was_looked_at,
)
from calve.sink_core.tables.log.range_parts import Replaces
from tests.codes import says
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import SCHEMA, World, attempt_of, land, manifest_of
from tests.unit.tables.log.build import TABLE


@pytest.fixture
def world(catalog: Catalog) -> World:
    """One batch is in the table."""
    world = World.create(catalog)
    world.publish("b1", 1)
    world.commit()
    return world


def listed(world: World, name: str = "*") -> dict[str, Listed]:
    """What lies below the table, by name."""
    return {file.name: file for file in list_files(world.table) if Path(file.name).match(name)}


def test_the_manifest_list_of_a_commit_that_sleeps_may_still_land_until_another_took_its_turn(world: World) -> None:
    before = listed(world, "snap-*.avro")
    late = attempt_of(world.table, own(4), manifest_of(world.table, 2))
    ((_, asleep),) = listed(world, "snap-*.avro").items() - before.items()
    assert may_still_land(asleep, world.table)
    world.append_foreign(100)
    assert not may_still_land(asleep, world.table)
    with pytest.raises(Exception, match="branch main has changed"):
        land(world.table, late)


def test_a_metadata_file_that_is_about_to_become_the_table_s_may_still_land(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written, and the catalog does not point to it yet."""
    write, found = SqlCatalog._write_metadata, list[bool]()

    def slow(*given: object, **named: object) -> None:
        before = listed(world, "*.metadata.json")
        write(*given, **named)  # pyright: ignore[reportArgumentType]
        ((_, asleep),) = listed(world, "*.metadata.json").items() - before.items()
        found.append(may_still_land(asleep, world.table))

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(slow))
    world.append_foreign(100)
    assert found == [True]
    assert [may_still_land(file, world.table) for file in listed(world, "*.metadata.json").values()] == [False] * 3


@pytest.mark.parametrize("name", ["latest.metadata.json", "snapshot.metadata.json.gz"])
def test_a_metadata_file_of_which_the_name_says_no_number_may_still_land(world: World, name: str) -> None:
    assert may_still_land(Listed(f"{world.table.location()}/metadata/{name}", 1, 0), world.table)


def test_what_a_commit_writes_again_may_still_land_until_another_took_its_turn(world: World) -> None:
    number = world.table.metadata.next_sequence_number()
    names = [rewritten_name(number), f"{rewritten_prefix(number)}-1.parquet"]
    files = [Listed(f"{world.table.location()}/data/{name}", 1, 0) for name in names]
    assert [may_still_land(file, world.table) for file in files] == [True, True]
    world.append_foreign(100)
    assert [may_still_land(file, world.table) for file in files] == [False, False]


def test_a_file_of_a_batch_can_not_land_by_itself(world: World) -> None:
    """What it needs to land is an event."""
    assert not may_still_land(Listed(f"{world.table.location()}/data/calve-b1-0.parquet", 1, 0), world.table)


def test_what_events_name_is_named_with_the_files_in_it(world: World) -> None:
    """A replay that waits: its rows, the rows that it keeps, and what it will take out, which its commit looks at."""
    table = world.table
    rows, kept, gone = (manifest_of(table, number) for number in (2, 3, 4))
    replaces = Replaces(base_snapshot_id=None, gone=(gone,), kept=(kept,))
    world.log.events.append(replace(world.event("r1"), manifests=(rows,), replaces=replaces))
    named = named_by_events(world.log.state, TABLE, table)
    for ref in (rows, kept, gone):
        assert {ref.path, *(entry.data_file.file_path for entry in entries_of(table.io, ref))} <= named


def test_what_was_published_for_a_table_that_is_no_more_is_named_as_well(world: World) -> None:
    """A finding stands against it, and its answer may take these files."""
    world.publish("b2", 2)
    path = world.log.state.written[TABLE][-1].event.manifests[0].path
    world.recreate()
    assert path in named_by_events(world.log.state, TABLE, world.table)


def test_a_manifest_that_is_gone_names_nothing_but_itself(world: World) -> None:
    world.publish("b2", 2)
    ref = world.log.state.written[TABLE][-1].event.manifests[0]
    Path(ref.path.removeprefix("file://")).unlink()
    world.log.events = world.log.events[-2:]
    assert named_by_events(world.log.state, TABLE, world.table) == {ref.path}


def test_files_of_others_are_not_listed_and_those_of_hidden_partitions_are(world: World) -> None:
    folder = Path(world.table.location().removeprefix("file://"))
    for place in ("_spark/state", "data/.part.crc", "data/x=1/part.parquet"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_bytes(b"nothing")
    assert {"state", ".part.crc"}.isdisjoint(listed(world))
    assert "part.parquet" in listed(world)


def test_manifest_lists_of_snapshots_are_known(world: World) -> None:
    world.append_foreign(100)
    paths = {file.path for file in listed(world, "snap-*.avro").values()}
    assert known_of_snapshots(world.table) == paths


def test_the_locations_of_all_tables_are_known_whatever_namespace_they_are_in(world: World) -> None:
    world.catalog.create_namespace("other.inner")
    inner = world.catalog.create_table("other.inner.t", SCHEMA)
    assert locations_of_all(world.catalog) == {TABLE: world.table.location(), "other.inner.t": inner.location()}


def test_a_table_that_can_t_be_loaded_hides_no_other_s_location(world: World) -> None:
    world.catalog.create_namespace("other.inner")
    inner = world.catalog.create_table("other.inner.t", SCHEMA)
    Path(inner.metadata_location.removeprefix("file://")).unlink()
    where = locations_of_all(world.catalog)
    assert where.pop(TABLE) == world.table.location()
    says(str(where["other.inner.t"]), Code.METADATA_GONE, "other.inner.t")


def test_a_look_is_noted_unless_the_table_is_gone(world: World) -> None:
    before = world.table
    assert not was_looked_at(before)
    note_looked_at(world.catalog, before, 5)
    assert was_looked_at(world.table)
    world.recreate()
    note_looked_at(world.catalog, before, 6)
    assert not was_looked_at(world.table)

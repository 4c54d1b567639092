"""What a table must still have: the files of the tagged snapshot where its ancestry is cut, and specs and schemas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Logged
from calve.sink_core.errors import ProtocolError
from calve.sink_core.iceberg.commit.preconditions import check_still_there, holds_tagged_files
from calve.sink_core.iceberg.files.manifests import entries_of, write_manifest_of
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.range_parts import Replaces
from tests.codes import raises
from tests.unit.iceberg.commit.build import own
from tests.unit.iceberg.commit.on_catalog import SCHEMA, World, attempt_of, land, look, manifest_of, metadata_path
from tests.unit.tables.log.build import complete


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
    with raises(Code.SPEC_GONE, 7, 0, "[0]"):
        check_still_there(world.table, pending(of_another))


@pytest.mark.parametrize("how", ["manifest", "beside", "up", "gone"])
def test_a_forged_event_that_names_files_of_others_commits_nothing(world: World, how: str) -> None:
    """Who may write to the control topic knows the pipeline's id: everybody who reads it does."""
    event = world.event("b1", 1)
    [ref] = event.manifests
    location = world.table.location()
    path = {
        "manifest": "s3://lake/other_team/payroll/metadata/m.avro",
        "beside": f"{location}_of_others/metadata/m.avro",
        "up": f"{location}/../other/metadata/m.avro",
        "gone": "s3://lake/other_team/payroll/metadata/m.avro",
    }[how]
    foreign = replace(ref, path=path)
    forged = replace(event, manifests=(foreign,))
    if how == "gone":
        forged = replace(event, replaces=Replaces(base_snapshot_id=None, gone=(foreign,), kept=()))
    world.log.events += [forged, complete("b1")]
    with raises(Code.FOREIGN_FILES, path, location, "b1", of=ProtocolError):
        world.commit()
    assert world.table.current_snapshot() is None


def test_a_manifest_of_the_table_that_names_files_of_others_is_not_committed(world: World) -> None:
    """Expiry would delete these files once compaction has taken them out again."""
    other = world.catalog.create_table("air.payroll", SCHEMA)
    theirs = entries_of(other.io, manifest_of(other, 4111))[0].data_file
    theirs.spec_id = 0
    table = world.table
    ref = write_manifest_of(table.io, table.metadata, 0, [theirs], metadata_path(table, "forged"))
    world.log.events += [replace(world.event("b1", 1), manifests=(ref,)), complete("b1")]
    with raises(Code.FOREIGN_FILES, theirs.file_path, ref.path, table.location(), of=ProtocolError):
        world.commit()
    assert world.table.current_snapshot() is None


def test_a_manifest_that_is_not_the_one_that_was_published_is_not_committed(world: World) -> None:
    event, other = world.event("b1", 1), world.event("b2", 2)
    [ref], [instead] = event.manifests, other.manifests
    Path(ref.path.removeprefix("file://")).write_bytes(Path(instead.path.removeprefix("file://")).read_bytes())
    world.log.events += [event, complete("b1")]
    with raises(Code.FOREIGN_FILES, ref.path, ref.sha256, instead.sha256, of=ProtocolError):
        world.commit()
    assert world.table.current_snapshot() is None


@pytest.mark.parametrize("property_", ["write.data.path", "write.metadata.path"])
def test_files_may_be_where_properties_of_the_table_put_them(world: World, property_: str, tmp_path: Path) -> None:
    with world.table.transaction() as changes:
        changes.set_properties({property_: f"file://{tmp_path}/elsewhere"})
    world.publish("b1", 1)
    world.commit()
    assert world.ids() == [1]


def test_files_of_a_schema_that_was_removed_are_not_committed(world: World) -> None:
    """Its columns could stand for others by then."""
    event = world.event("b1", 1)
    with raises(Code.SPEC_GONE, 0, 5, "[0]"):
        check_still_there(world.table, pending(replace(event, schema_id=5)))

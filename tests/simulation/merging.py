"""Spark's part of a merge, on modelled files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID

from calve.sink_core.errors import CommitConflict, RetriableError
from calve.sink_core.iceberg.commit.append import at_ref, set_ref
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.shares import Events
from tests.simulation.storage import Content, DataFile, ListedManifest, Manifest, ManifestList
from tests.simulation.world import World

TRIES = 3
"""Iceberg's own, of its commit."""


def merge(world: World, table: Table, branch: str, events: Events) -> None:
    """In place of Spark: one snapshot on the branch, or none, with one of its files rewritten."""
    name = ".".join(table.name())
    paths = [path for e in events for ref in e.event.added for path in _named(world, name, ref)]
    for again in range(TRIES):
        metadata = _loaded(world, name)
        ref = metadata.refs.get(branch)
        if ref is None and not again:
            raise RetriableError(f"{name} has no branch {branch}")
        # Iceberg's Java library takes a branch that has gone meanwhile for a new one.
        parent = metadata.snapshot_by_id(ref.snapshot_id) if ref else metadata.current_snapshot()
        try:
            _merge_on(world, name, metadata, branch, parent, paths)
        except FileNotFoundError as error:
            raise RetriableError(f"{name}: {error} is gone") from error
        except NoSuchTableError as error:
            raise RetriableError(f"{name} is gone") from error
        except CommitStateUnknownException as error:
            raise RetriableError(f"{name}: nobody knows whether the changes are merged") from error
        except (CommitFailedException, ValueError):
            continue
        return
    raise CommitConflict(f"{name} has changed again and again")


def _loaded(world: World, name: str) -> TableMetadata:
    try:
        return world.catalog.load_table(name).metadata
    except NoSuchTableError as error:
        raise RetriableError(f"{name} is gone") from error


def _named(world: World, name: str, ref: ManifestRef) -> tuple[str, ...]:
    try:
        return world.store.manifest(ref.path).files
    except FileNotFoundError as error:
        raise RetriableError(f"{name}: {error} is gone") from error


def _merge_on(
    world: World, name: str, metadata: TableMetadata, branch: str, parent: Snapshot | None, paths: Sequence[str]
) -> None:
    files, number = world.store.data_files(parent), world.chance.getrandbits(48)
    taken = [files.pop(0)] if files else []
    rows = tuple(row for path in (*taken, *paths) for row in world.store.rows(path))
    world.scheduler.give_way()
    path = _under_way(world, f"sim:///{name}/data/merged-{number}.parquet", DataFile(rows))
    manifest = _under_way(world, f"sim:///{name}/metadata/merged-{number}-m0.avro", Manifest((*files, path)))
    sequence_number = metadata.next_sequence_number()
    listed = _under_way(
        world,
        f"sim:///{name}/metadata/snap-merged-{number}.avro",
        ManifestList((ListedManifest(world.store, manifest, number),), sequence_number),
    )
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
        manifest_list=listed,
        timestamp_ms=world.now_ms(),
        summary=Summary(Operation.OVERWRITE),
        schema_id=metadata.current_schema_id,
    )
    there = metadata.refs.get(branch)
    world.catalog.commit_table(
        world.catalog.load_table(name),
        (AssertTableUUID(uuid=metadata.table_uuid), at_ref(branch, there.snapshot_id if there else None)),
        (AddSnapshotUpdate(snapshot=snapshot), set_ref(branch, SnapshotRefType.BRANCH, number)),
    )


def _under_way(world: World, path: str, content: Content) -> str:
    """A file that is never too old for a merge that is still in progress: none takes three days."""
    world.store.write(path, content)
    world.store.written_ms[path] = sys.maxsize
    return path

"""A model of files and of a catalog with compare-and-swap. Metadata are pyiceberg's own, manifests and rows are not.

A row is any hashable value. Iceberg's manifest lists and manifests are lists here; pyiceberg's functions that read and
write them are replaced by `patches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate, update_table_metadata

from tests.simulation.scheduler import Scheduler

Row = tuple[Any, ...]
Swapped = Callable[[str, TableMetadata, TableMetadata], None]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file and its rows."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Paths of the data files it names."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest in a manifest list; `added_snapshot_id` is that of the snapshot that added it, `added_before` has the
    ids for files that were there before.
    """

    store: FileStore
    manifest_path: str
    added_snapshot_id: int
    added_before: Mapping[str, int] = field(default_factory=dict[str, int])
    content: ManifestContent = ManifestContent.DATA
    partition_spec_id: int = 0

    def entries(self) -> list[Any]:
        return [
            _Entry(self.added_before.get(path, self.added_snapshot_id), ListedFile(path))
            for path in self.store.manifest(self.manifest_path).files
        ]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file as manifests name it."""

    file_path: str
    spec_id: int = 0
    record_count: int = 0
    file_size_in_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    snapshot_id: int
    data_file: ListedFile


@dataclass(frozen=True, slots=True)
class ManifestList:
    """What a snapshot consists of."""

    manifests: tuple[ListedManifest, ...]
    sequence_number: int


Content = DataFile | Manifest | ManifestList


@dataclass
class FileStore:
    """All files ever written that have not been deleted, by path, and when each was written (ms).

    `described` are the rows of each data file, deleted ones included, for what only looks at metrics in manifests.
    """

    now_ms: Callable[[], int]
    files: dict[str, Content] = field(default_factory=dict[str, Content])
    written_ms: dict[str, int] = field(default_factory=dict[str, int])
    described: dict[str, tuple[Row, ...]] = field(default_factory=dict[str, "tuple[Row, ...]"])

    def write(self, path: str, content: Content) -> str:
        assert path not in self.files, path
        self.files[path] = content
        self.written_ms[path] = self.now_ms()
        if isinstance(content, DataFile):
            self.described[path] = content.rows
        return path

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def manifest(self, path: str) -> Manifest:
        return self._read(path, Manifest)

    def manifest_list(self, path: str) -> ManifestList:
        return self._read(path, ManifestList)

    def rows(self, path: str) -> tuple[Row, ...]:
        return self._read(path, DataFile).rows

    def _read(self, path: str, kind: type[Any]) -> Any:
        found = self.files.get(path)
        if not isinstance(found, kind):
            raise FileNotFoundError(path)
        return found

    def data_files(self, snapshot: Snapshot | None) -> list[str]:
        """Live data files of a snapshot."""
        if snapshot is None:
            return []
        listed = self.manifest_list(snapshot.manifest_list).manifests
        return [file for manifest in listed for file in self.manifest(manifest.manifest_path).files]

    def reachable(self, snapshots: Iterable[Snapshot]) -> set[str]:
        """Every path the snapshots need."""
        found: set[str] = set()
        for snapshot in snapshots:
            found.add(snapshot.manifest_list)
            for manifest in self.manifest_list(snapshot.manifest_list).manifests:
                found.add(manifest.manifest_path)
                found.update(self.manifest(manifest.manifest_path).files)
        return found

    def new_output(self, path: str) -> str:
        return path

    def new_input(self, path: str) -> _Input:
        """As pyiceberg's FileIO."""
        return _Input(path in self.files)


@dataclass(frozen=True, slots=True)
class _Input:
    there: bool

    def exists(self) -> bool:
        return self.there


class CatalogBug(Enum):
    """What a client of a catalog, or a transaction on top of one, has done in other systems."""

    RETRIES_WITHOUT_ASSERTION = "a refused commit is sent again without what it asserted"
    DELETES_AFTER_A_LOST_REPLY = "the files of a commit are deleted whose reply was lost"


NO_BUGS: Set[CatalogBug] = frozenset()


class SimCatalog:
    """The catalog's tables. `swapped` is told of each change with the metadata before and after.

    `lossy` says what happens to a commit: "", "lost", "unanswered" or "late".
    """

    name = "lake"

    def __init__(
        self,
        scheduler: Scheduler,
        store: FileStore,
        lossy: Callable[[str], str],
        later: list[Callable[[], None]],
        bugs: Set[CatalogBug],
        delete_file: Callable[[str], None],
    ) -> None:
        self.scheduler = scheduler
        self.store = store
        self._lossy = lossy
        self._later = later
        self._bugs = bugs
        self._delete_file = delete_file
        self.tables: dict[str, TableMetadata] = {}
        self.namespaces: set[tuple[str, ...]] = set()
        self.swapped: Swapped = lambda _name, _before, _after: None

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        self.scheduler.give_way()
        name = _name(identifier)
        if name not in self.tables:
            raise NoSuchTableError(f"no table {name}")
        io: Any = self.store
        catalog: Any = self
        return Table(tuple(name.split(".")), self.tables[name], _metadata_path(self.tables[name]), io, catalog)

    def commit_table(
        self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> CommitTableResponse:
        self.scheduler.give_way()
        name = _name(table.name())
        fate = self._lossy("swap")
        if fate == "late":
            self._later.append(lambda: self._swap_late(name, requirements, updates))
        if fate not in ("lost", "late"):
            try:
                self.swap(name, requirements, updates)
            except CommitFailedException:
                if CatalogBug.RETRIES_WITHOUT_ASSERTION not in self._bugs:
                    raise
                self.swap(name, (), updates)
        if fate:
            if CatalogBug.DELETES_AFTER_A_LOST_REPLY in self._bugs:
                for update in updates:
                    if isinstance(update, AddSnapshotUpdate):
                        self._delete_file(update.snapshot.manifest_list)
            raise CommitStateUnknownException("no reply")
        after = self.tables[name]
        return CommitTableResponse(metadata=after, metadata_location=_metadata_path(after))

    @staticmethod
    def _delete_old_metadata(*_: object) -> None:
        """Nothing: metadata are no files here."""

    def swap(self, name: str, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> None:
        """The compare-and-swap itself. Raises CommitFailedException if a requirement does not hold."""
        before = self.tables.get(name)
        if before is None:
            raise NoSuchTableError(f"no table {name}")
        for requirement in requirements:
            requirement.validate(before)
        self.replace(name, update_table_metadata(before, tuple(updates)))

    def replace(self, name: str, after: TableMetadata) -> None:
        """Put other metadata in a table's place, asking nobody."""
        before = self.tables[name]
        self.tables[name] = after
        self.swapped(name, before, after)

    def _swap_late(self, name: str, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> None:
        with suppress(CommitFailedException, NoSuchTableError, ValueError):
            self.swap(name, requirements, updates)

    def create_table(
        self,
        identifier: str | tuple[str, ...],
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        *,
        properties: Mapping[str, str],
    ) -> Table:
        self.scheduler.give_way()
        name = _name(identifier)
        if name in self.tables:
            raise TableAlreadyExistsError(name)
        self.tables[name] = new_table_metadata(
            schema, partition_spec, sort_order, location or f"sim:///{name}", dict(properties)
        )
        return self.load_table(name)

    def namespace_exists(self, namespace: tuple[str, ...]) -> bool:
        return namespace in self.namespaces

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        self.namespaces.add(namespace)

    def list_namespaces(self, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return sorted(n for n in self.namespaces if n[: len(parent)] == parent and len(n) == len(parent) + 1)

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = (tuple(name.split(".")) for name in self.tables)
        return sorted(identifier for identifier in found if identifier[:-1] == namespace)

    def close(self) -> None:
        pass

    def expire(self, name: str, going: Set[int], *, new_root: bool) -> list[str]:
        """Remove snapshots; the files that only they needed, for the caller to delete.

        `new_root`: as pyiceberg does it, which leaves no parent where the parent is gone; Iceberg's Java library keeps
        its id.
        """
        before = self.tables[name]
        staying = [s for s in before.snapshots if s.snapshot_id not in going]
        needed = self.store.reachable(staying)
        if new_root:
            staying = [
                s.model_copy(update={"parent_snapshot_id": None}) if s.parent_snapshot_id in going else s
                for s in staying
            ]
        self.replace(name, before.model_copy(update={"snapshots": staying}))
        gone = [s for s in before.snapshots if s.snapshot_id in going]
        return sorted(self.store.reachable(gone) - needed)

    def head(self, name: str) -> Snapshot | None:
        metadata = self.tables[name]
        head = metadata.refs.get(MAIN_BRANCH)
        return metadata.snapshot_by_id(head.snapshot_id) if head else None

    def rows(self, name: str) -> list[Row]:
        """As a reader of the table's head sees them."""
        return [row for path in self.store.data_files(self.head(name)) for row in self.store.rows(path)]


def write_list(
    store: FileStore,
    path: str,
    manifests: Iterable[ManifestFile | ListedManifest],
    *,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
) -> None:
    """In place of `calve.sink_core.iceberg.files.manifest_list.write_list`."""
    del parent_snapshot_id
    listed = (
        each if isinstance(each, ListedManifest) else ListedManifest(store, each.manifest_path, snapshot_id)
        for each in manifests
    )
    store.write(path, ManifestList(tuple(listed), sequence_number))


def entries_of(store: FileStore, manifest: ManifestFile | ListedManifest) -> list[Any]:
    """In place of `calve.sink_core.iceberg.files.entries.live_entries`."""
    listed = manifest if isinstance(manifest, ListedManifest) else ListedManifest(store, manifest.manifest_path, -1)
    return listed.entries()


def manifest_without(store: FileStore, manifest: ListedManifest, gone: Set[str], snapshot_id: int, path: str) -> Any:
    """In place of `calve.sink_core.iceberg.files.manifests.write_without`."""
    left = {e.data_file.file_path: e.snapshot_id for e in manifest.entries()}
    left = {file: added for file, added in left.items() if file not in gone}
    return ListedManifest(store, store.write(path, Manifest(tuple(left))), snapshot_id, left)


def _name(identifier: str | tuple[str, ...]) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)


def _metadata_path(metadata: TableMetadata) -> str:
    return f"{metadata.location}/metadata/{metadata.last_sequence_number:05d}-0.metadata.json"

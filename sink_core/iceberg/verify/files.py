"""The files of a table's head: do they exist, is one named twice, and reading columns of them one file at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import FileScanTask, Table

from calve.sink_core.config.error_text import describe
from calve.sink_core.control.events import Logged
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile, unreachable_as_ours
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.files.entries import each_head_file, live_entries
from calve.sink_core.iceberg.files.manifests import entries_of
from calve.sink_core.iceberg.files.requests import answers
from calve.sink_core.iceberg.replace.head_files import HeadFile, holding
from calve.sink_core.iceberg.verify.joint_reader import JointFiles, JointReader, in_groups
from calve.sink_core.iceberg.verify.packed_files import PackedFiles
from calve.sink_core.iceberg.verify.wanted import may_have
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.format.proven import Wanted
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.proof import Evidence

UNREADABLE = (OSError, pa.ArrowException, EOFError)
"""What reading a broken file raises."""

_PROGRESS_EVERY = 1000
# No snapshot has this id.
_NO_SNAPSHOT = -1


@dataclass(slots=True)
class ReadableFiles:
    """The files of a table that could be found. Reading one that turns out broken is a violation, not a crash."""

    table: Table
    name: str
    tasks: Sequence[FileScanTask]
    evidence: Evidence

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns as Arrow batches, deletes applied; those that the table lacks are left out.

        Memory: these columns of one file, or of a group of small ones.
        """
        known = self.table.schema().column_names
        schema = self.table.schema().select(*(name for name in columns if name in known))
        scan = ArrowScan(self.table.metadata, self.table.io, schema, AlwaysTrue())
        joint = JointReader(self.table.io, schema)
        done = 0
        for group in in_groups(self.tasks):
            self.evidence.progress(f"{self.name}: file {done + 1} of {len(self.tasks)}")
            done += len(group)
            together = self._together(joint, group)
            yield from together.batches
            for task in together.others:
                yield from self._alone(scan, task)

    def holding(self, ranges: Iterable[OffsetRange], *, struct: str | None) -> tuple[HeadFile, ...]:
        """Those that may hold rows of the ranges, as in `files_holding`. All of them must be the head's."""
        return holding(self.table, (task.file for task in self.tasks), ranges, struct=struct)

    def _together(self, joint: JointReader, group: list[FileScanTask]) -> JointFiles:
        if len(group) == 1:
            return JointFiles([], group)
        try:
            return joint.read(group)
        except UNREADABLE:
            # Read one by one they tell which it is.
            return JointFiles([], group)

    def _alone(self, scan: ArrowScan, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        try:
            yield from scan.to_record_batches([task])
        except UNREADABLE as error:
            message = f"{task.file.file_path} can't be read: {describe(error)}"
            self.evidence.violation("file-unreadable", self.name, message)


def head_tasks(table: Table, name: str, evidence: Evidence) -> list[FileScanTask] | None:
    """What the head names; None if that can't be said (a violation, or row changes that pyiceberg does not read)."""
    tasks: list[FileScanTask] = []
    return tasks if _take_head(table, name, evidence, tasks.append) else None


def _take_head(table: Table, name: str, evidence: Evidence, take: Callable[[FileScanTask], object]) -> bool:
    """Gives `take` what the head names; False, after some of it or none, where `head_tasks` is None."""
    try:
        with unreachable_as_ours(f"listing the files of {name}"):
            for task in each_head_file(table):
                take(task)
            return True
    except ValueError as error:
        evidence.skipped(name, f"the rows of its files: {error}")
    except Exception as error:
        lost = _missing_metadata(table)
        if not lost:
            raise
        evidence.violation("metadata-file-missing", name, f"{lost} is gone; the head can't be read: {error}"[:400])
    return False


def _missing_metadata(table: Table) -> str | None:
    """The manifest list or manifest of the head that does not exist."""
    head = table.current_snapshot()
    if head is None:
        return None
    if not table.io.new_input(head.manifest_list).exists():
        return head.manifest_list
    paths = (m.manifest_path for m in head.manifests(table.io))
    return next((p for p in paths if not table.io.new_input(p).exists()), None)


def check_files(
    table: Table,
    view: TableView,
    written: Iterable[Logged[DataWritten]],
    catalog: Catalog,
    evidence: Evidence,
    wanted: Wanted | None = None,
) -> ReadableFiles:
    """Every file that the head names exists and is named once; returns those that are there.

    If some are not, the table is loaded again: a file that maintenance took out of the head meanwhile is not missing.
    Only files are looked for that may have the rows that are `wanted`.
    """

    def reload() -> Table:
        found = load_if_there(catalog, view.table)
        if found is None:
            raise dropped_meanwhile(view.table)
        return found

    named = PackedFiles(table.location())
    looked_at = PackedFiles(table.location()) if wanted is not None else named
    may_hold = may_have(table.schema(), wanted) if wanted is not None else None

    def take(task: FileScanTask) -> None:
        named.append(task)
        if may_hold is not None and may_hold(task.file):
            looked_at.append(task)

    if not _take_head(table, view.table, evidence, take):
        _check_unread(table, view, written, reload, evidence)
        return ReadableFiles(table, view.table, [], evidence)
    for path, times in named.named_often().items():
        message = f"{path} is named {times} times by the head: its rows count doubly"
        evidence.violation("file-twice", view.table, message)
    evidence.count("files", len(looked_at))
    if len(looked_at) < len(named):
        left = f"{len(named) - len(looked_at)} of {len(named)} files, which hold nothing of the batches looked at"
        evidence.skipped(view.table, left)
    missing = set(missing_files(table.io, looked_at.paths(), view.table, evidence))
    if not missing:
        return ReadableFiles(table, view.table, looked_at, evidence)
    fresh = head_tasks(reload(), view.table, evidence)
    gone = sorted(missing.intersection(_paths(fresh if fresh is not None else looked_at)))
    _report_gone(table, view, written, gone, evidence)
    readable = [task for task in looked_at if missing.isdisjoint(_paths([task]))]
    return ReadableFiles(table, view.table, readable, evidence)


def _check_unread(
    table: Table,
    view: TableView,
    written: Iterable[Logged[DataWritten]],
    reload: Callable[[], Table],
    evidence: Evidence,
) -> None:
    """As `check_files`, of a head with deletes that pyiceberg does not read: its manifests name the files."""
    if _missing_metadata(table):
        # It was told already.
        return
    paths = _named(table)
    evidence.count("files", len(paths))
    missing = set(missing_files(table.io, paths, view.table, evidence))
    if missing:
        _report_gone(table, view, written, sorted(missing.intersection(_named(reload()))), evidence)


def _named(table: Table) -> list[str]:
    head = table.current_snapshot()
    return [
        entry.data_file.file_path
        for manifest in (head.manifests(table.io) if head else [])
        for entry in live_entries(table.io, manifest)
    ]


def _report_gone(
    table: Table, view: TableView, written: Iterable[Logged[DataWritten]], gone: Sequence[str], evidence: Evidence
) -> None:
    owners = _batches_of(table, view, written, set(gone))
    for path in gone:
        message = f"{path} does not exist, and the head names it"
        evidence.violation("file-missing", view.table, message, batches=owners.get(path, ()))


def missing_files(io: FileIO, paths: Iterable[str], name: str, evidence: Evidence) -> Iterator[str]:
    """Those of `paths` that do not exist, by a request for each."""

    def exists(path: str) -> bool:
        with unreachable_as_ours(f"looking for {path}"):
            return io.new_input(path).exists()

    wanted = list(dict.fromkeys(paths))
    for start in range(0, len(wanted), _PROGRESS_EVERY):
        chunk = wanted[start : start + _PROGRESS_EVERY]
        evidence.progress(f"{name}: looking for files {start + 1} to {start + len(chunk)} of {len(wanted)}")
        yield from (path for path, there in zip(chunk, answers(exists, chunk), strict=True) if not there)


def pending_tasks(
    table: Table, pending: Iterable[Logged[DataWritten]], name: str, evidence: Evidence
) -> list[FileScanTask]:
    """The files of batches that are published and that the table has not yet."""
    tasks: list[FileScanTask] = []
    for logged in pending:
        for ref in logged.event.added:
            tasks += _tasks_of(table, ref, logged.event.batch_id, name, evidence)
    return tasks


def _tasks_of(table: Table, ref: ManifestRef, batch_id: str, name: str, evidence: Evidence) -> list[FileScanTask]:
    if not table.io.new_input(ref.path).exists():
        message = f"{ref.path} does not exist; batch {batch_id} is published and not committed"
        evidence.violation("file-missing", name, message, batches=(batch_id,))
        return []
    tasks = [FileScanTask(entry.data_file) for entry in entries_of(table.io, ref)]
    missing = set(missing_files(table.io, _paths(tasks), name, evidence))
    for path in sorted(missing):
        message = f"{path} does not exist; batch {batch_id} is published and not committed"
        evidence.violation("file-missing", name, message, batches=(batch_id,))
    return [task for task in tasks if task.file.file_path not in missing]


def _paths(tasks: Iterable[FileScanTask]) -> Iterator[str]:
    for task in tasks:
        yield task.file.file_path
        yield from (delete.file_path for delete in task.delete_files)


def _batches_of(
    table: Table, view: TableView, written: Iterable[Logged[DataWritten]], paths: set[str]
) -> dict[str, tuple[str, ...]]:
    """The batch that each of `paths` belongs to: by its manifest's event, else those of the snapshot that added it."""
    head = table.current_snapshot()
    if head is None or not paths:
        return {}
    by_manifest = {m.path: logged.event.batch_id for logged in written for m in logged.event.added}
    owners: dict[str, tuple[str, ...]] = {}
    for manifest in head.manifests(table.io):
        for entry in live_entries(table.io, manifest):
            if entry.data_file.file_path in paths:
                owners[entry.data_file.file_path] = _owner(manifest, by_manifest, view)
    return owners


def _owner(manifest: ManifestFile, by_manifest: dict[str, str], view: TableView) -> tuple[str, ...]:
    if manifest.manifest_path in by_manifest:
        return (by_manifest[manifest.manifest_path],)
    snapshot = view.snapshots.get(manifest.added_snapshot_id or _NO_SNAPSHOT)
    return snapshot.own.batches if snapshot and snapshot.own else ()

"""Files of Hudi tables that nothing names: staged ones of batches that were never published, and base files of instants
that nobody will complete.

In the one order that is safe beside ingestion: list, give up what is in progress, read the log to its end, look at the
table; then delete what was listed and is named by neither. A file that came after the listing is not on the list.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.errors import ProtocolError
from calve.sink_core.hudi.commit.examine import HudiTables
from calve.sink_core.hudi.files.staged import read_staged, staged_batches
from calve.sink_core.hudi.files.timeline import Instant, metadata_of
from calve.sink_core.hudi.table.shape import FileOnDisk, base_files
from calve.sink_core.tables.format.upkeep import Job
from calve.sink_core.tables.log.state import CommitState

TASK = "orphans"


@dataclass(frozen=True, slots=True)
class HudiLeftovers:
    """As `Leftovers`: folders of staged files by the batch that each is of, and base files of no completed instant."""

    tables: HudiTables
    job: Job
    outcome: TaskOutcome | None = None
    staged: tuple[tuple[Path, str], ...] = ()
    files: tuple[FileOnDisk, ...] = ()

    def remove(self, state: CommitState) -> TaskOutcome:
        name = self.job.name
        table = self.tables.load(name)
        assert table is not None
        completed = {instant.requested for instant in table.timeline.commits}
        pending = state.pending(name, table.uuid, table.stored_offset)
        try:
            coming = {read_staged(table.place, ref).instant for e in pending for ref in e.event.manifests}
        except ProtocolError as error:
            return _nothing(name, f"which files of published batches are to come can't be told: {error.message}")
        waiting = {logged.event.batch_id for logged in pending}
        folders = [path for path, batch_id in self.staged if batch_id not in waiting]
        files = [file for file in self.files if file.instant not in completed | coming]
        if not folders and not files:
            return _nothing(name, "no file is an orphan")
        size = sum(file.size for file in files) + sum(map(_size, folders))
        numbers = {"orphan_files": len(files), "staged_folders": len(folders), "orphan_bytes": size}
        if self.job.dry_run:
            would = f"{len(files):,} files and {len(folders):,} folders of {size:,} bytes would be deleted (as asked)"
            return TaskOutcome(TASK, name, would, False, numbers, numbers)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        for file in files:
            file.path.unlink(missing_ok=True)
        did = f"{len(files):,} files and {len(folders):,} folders of {size:,} bytes deleted"
        return TaskOutcome(TASK, name, did, True, numbers, dict.fromkeys(numbers, 0))


def list_leftovers(tables: HudiTables, job: Job, older_than_ms: int) -> HudiLeftovers:
    table = tables.load(job.name)
    if table is None:
        return HudiLeftovers(tables, job, _nothing(job.name, "there is no such table"))
    if why := table.why_not_owned(job.owned):
        return HudiLeftovers(tables, job, _nothing(job.name, why))
    job.tell(f"{job.name}: listing files")
    old_s = older_than_ms / 1000
    staged = tuple((path, batch) for path, batch in staged_batches(table.place).items() if _newest_s(path) < old_s)
    named = {file_id for each in table.timeline.commits for file_id in _file_ids(each)}
    completed = {instant.requested for instant in table.timeline.commits}
    first = min(completed, default="")
    files = tuple(
        file
        for file in base_files(table.place)
        # Of instants that were archived nothing is known: their files are the table's.
        if file.modified_s < old_s
        and file.instant not in completed
        and file.instant > first
        and file.file_id not in named
    )
    if not staged and not files:
        return HudiLeftovers(tables, job, _nothing(job.name, "no file that nothing names is older than older_than"))
    return HudiLeftovers(tables, job, None, staged, files)


def _file_ids(instant: Instant) -> Iterator[str]:
    """Of the files that a completed commit names."""
    for stats in (metadata_of(instant).get("partitionToWriteStats") or {}).values():
        yield from (stat["fileId"] for stat in stats)


def _newest_s(folder: Path) -> float:
    return max((path.stat().st_mtime for path in (folder, *folder.iterdir())), default=0.0)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _nothing(name: str, why: str) -> TaskOutcome:
    return TaskOutcome(TASK, name, f"nothing to do: {why}", False)

"""Orphan removal, in the one order that is safe beside ingestion (docs/design.md, Maintenance beside ingestion):

1. list the files
2. fence, and give up outstanding batches: what was written for them can't be published any more
3. read the control log to the end seen at the fence: what was published is named there
4. load every table: what was committed is in a snapshot
5. delete what was listed in 1 and is named neither in 3 nor in 4

A file that is written after 1 is not on the list. Crash points: before 5 nothing is deleted; within it what is gone was
nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calve.sink_core.config.table_maintenance import Orphans
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.handles import Table
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
from calve.sink_core.iceberg.maintenance.owned import why_files_stay, why_not_owned
from calve.sink_core.sink.maintenance.work import Work, now_ms
from calve.sink_core.tables.log.state import CommitState

TASK = "orphans"

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Candidates:
    """A table's listed files that are old enough, and how many there are in all."""

    table: Table
    name: str
    old: tuple[Listed, ...]
    files: int


def remove_orphans(work: Work, settings: Orphans) -> MaintenanceReport:
    """Delete the files of owned tables that nothing names; a table's first run only lists them.

    Outstanding batches are given up if anything may be deleted. Raises what `give_up` raises.
    """
    older_than_ms = now_ms() - int(settings.older_than * 1000)
    listed: dict[str, _Candidates] = {}
    work.on_progress("looking at the locations of all tables of the catalog")
    locations = locations_of_all(work.session.catalog)

    def look(table: Table, name: str) -> TaskOutcome:
        others = [(other, location) for other, location in locations.items() if other != name]
        tag = work.session.pipeline.tag
        stays = why_not_owned(table, work.owned(name)) or why_files_stay(table, tag, others)
        if stays:
            return TaskOutcome(TASK, name, f"nothing to do: {stays}", False)
        work.on_progress(f"{name}: listing files")
        files = list(list_files(table))
        old = tuple(file for file in files if file.modified_ms < older_than_ms)
        listed[name] = _Candidates(table, name, old, len(files))
        return TaskOutcome(TASK, name, f"nothing to do: {len(files):,} files, none older than older_than", False)

    report = work.each(look)
    reach("orphans.after-list")
    candidates = {name: found for name, found in listed.items() if found.old}
    deleting = {name for name, found in candidates.items() if not work.dry_run and was_looked_at(found.table)}
    giving_up = deleting and work.session.rules.orphans_give_up_first
    state = work.session.publisher.give_up().state if giving_up else work.session.log.refresh_to_end()
    reach("orphans.after-give-up")

    def clean(_table: Table, name: str) -> TaskOutcome:
        return _clean(work, candidates[name], state, delete=name in deleting)

    cleaned = replace(work, tables=tuple(candidates)).each(clean) if candidates else MaintenanceReport()
    done = {outcome.subject: outcome for outcome in (*report.done, *cleaned.done)}
    failed = {**report.failed, **cleaned.failed}
    return MaintenanceReport([outcome for name, outcome in done.items() if name not in failed], failed)


def _clean(work: Work, found: _Candidates, state: CommitState, *, delete: bool) -> TaskOutcome:
    name = found.name
    work.session.committer().load_checked(name)
    table = work.load(name)
    rules = work.session.rules
    published = named_by_events(state, name, table) if rules.published_files_are_named else set[str]()
    named = published | known_of_snapshots(table)
    listed = found.old if rules.files_are_listed_first else tuple(list_files(table))
    old = [f for f in listed if not (rules.sleeping_commit_may_land and may_still_land(f, table))]
    possible = {f.path: f for f in old if f.path not in named}
    work.on_progress(f"{name}: comparing {len(possible):,} of {found.files:,} files with the table's metadata")
    reach("orphans.before-delete")
    paths = work.procedures.remove_orphan_files(name, possible, dry_run=not delete) if possible else []
    if not was_looked_at(table) and not work.dry_run:
        note_looked_at(work.session.catalog, table, now_ms())
    size = sum(possible[path].size for path in paths if path in possible)
    numbers = {"files": found.files, "orphan_files": len(paths), "orphan_bytes": size}
    if not paths:
        return TaskOutcome(
            TASK, name, f"nothing to do: none of {found.files:,} files is an orphan", False, numbers, numbers
        )
    if delete:
        after = {"files": found.files - len(paths), "orphan_files": 0, "orphan_bytes": 0}
        return TaskOutcome(TASK, name, f"{len(paths):,} files of {size:,} bytes deleted", True, numbers, after)
    why = "as asked" if work.dry_run else "a table's first run only lists; the next one deletes"
    shown = ", ".join(path.rpartition("/")[2] for path in sorted(paths)[:_SHOWN])
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    did = f"{len(paths):,} files of {size:,} bytes would be deleted ({why}): {shown}{more}"
    return TaskOutcome(TASK, name, did, False, numbers, numbers)

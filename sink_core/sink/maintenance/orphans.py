"""Orphan removal, in the one order that is safe beside ingestion (docs/design.md, Maintenance beside ingestion):

1. list the files
2. fence, and give up outstanding batches: what was written for them can't be published any more
3. read the control log to the end seen at the fence: what was published is named there
4. load every table: what was committed is in a snapshot
5. delete what was listed in 1 and is named neither in 3 nor in 4

A file that is written after 1 is not on the list. Crash points: before 5 nothing is deleted; within it what is gone was
nobody's. One fence is for all tables: each makes batches in progress begin again.

All ends within `maintenance.max_duration`, or half of it where the pipeline has tables of another format too, so that
what was listed is also deleted. Half of that is for 1: a table that has too many files stays as it is, is named, and
keeps none of the others waiting. Of those that were listed the ones with most old files are cleaned first. What there
is no time for the next run begins with: the others have less by then. A table of others that can't be loaded is named,
and only tables stay whose location does not end in their own name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from calve.sink_core.config.table_maintenance import Orphans
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import CalveError
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
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
from calve.sink_core.sink.maintenance.work import Work, listed_in_time, now_ms
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
    listing, cleaning = work.orphan_deadlines()
    tables: dict[str, Table] = {}
    work.on_progress("looking at the locations of all tables of the catalog")
    locations = locations_of_all(work.session.catalog)
    unknown = {name: why for name, why in locations.items() if isinstance(why, CalveError)}

    def look(table: Table, name: str) -> TaskOutcome:
        others = [(o, place) for o, place in locations.items() if o != name and isinstance(place, str)]
        tag = work.session.pipeline.tag
        stays = why_not_owned(table, work.owned(name)) or why_files_stay(table, tag, others, [*unknown.keys() - {name}])
        if stays:
            return TaskOutcome(TASK, name, f"nothing to do: {stays}", False)
        tables[name] = table
        return TaskOutcome(TASK, name, "nothing to do: no file is older than older_than", False)

    report = work.each(look)
    ours = work.session.pipeline.table_names
    report.done += [
        TaskOutcome(TASK, name, f"of others, and where it is nobody knows: {why.message} [{why.code}]", False)
        for name, why in unknown.items()
        if name not in ours
    ]
    work.on_progress(f"listing the files of {len(tables):,} tables")
    listed = listed_in_time({name: partial(_files, name, table) for name, table in tables.items()}, listing)
    report.failed |= {name: files for name, files in listed.items() if isinstance(files, CalveError)}
    reach("orphans.after-list")
    candidates = {
        name: _Candidates(tables[name], name, old, len(files))
        for name, files in listed.items()
        if not isinstance(files, CalveError)
        and (old := tuple(file for file in files if file.modified_ms < older_than_ms))
    }
    deleting = {name for name, found in candidates.items() if not work.dry_run and was_looked_at(found.table)}
    giving_up = deleting and work.session.rules.orphans_give_up_first
    state = work.session.publisher.give_up().state if giving_up else work.session.log.refresh_to_end()
    reach("orphans.after-give-up")

    def clean(_table: Table, name: str) -> TaskOutcome:
        if cleaning.passed:
            return work.left_for_time(name)
        return _clean(work, candidates[name], state, delete=name in deleting)

    worst_first = sorted(candidates, key=lambda name: -len(candidates[name].old))
    cleaned = replace(work, tables=worst_first).each(clean) if candidates else MaintenanceReport()
    done = {outcome.subject: outcome for outcome in (*report.done, *cleaned.done)}
    failed = {**report.failed, **cleaned.failed}
    return MaintenanceReport([outcome for name, outcome in done.items() if name not in failed], failed)


def _files(name: str, table: Table) -> list[Listed]:
    with unreachable_as_ours(f"listing the files of {name}"):
        return list(list_files(table))


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

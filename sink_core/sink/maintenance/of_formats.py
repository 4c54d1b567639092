"""Maintenance of tables whose format does it itself, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from calve.sink_core.config.table_formats import ICEBERG
from calve.sink_core.config.table_maintenance import Compact, Expire, Orphans
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import CalveError
from calve.sink_core.failpoints import reach
from calve.sink_core.sink.maintenance.work import Work, listed_in_time, now_ms
from calve.sink_core.tables.format.upkeep import Job, Leftovers, Upkeep


def compact(work: Work, settings: Compact) -> MaintenanceReport:
    target = work.session.pipeline.target_file_size
    return _each(work, lambda upkeep, job: upkeep.compact(job, settings, target(job.name).bytes))


def expire(work: Work, settings: Expire) -> MaintenanceReport:
    return _each(work, lambda upkeep, job: upkeep.expire(job, settings))


def remove_orphans(work: Work, settings: Orphans) -> MaintenanceReport:
    """As `orphans.remove_orphans`: listed first, then outstanding batches are given up, then the log is read; all by
    the same deadlines.
    """
    older_than_ms, listings = now_ms() - int(settings.older_than * 1000), dict[str, Callable[[], Leftovers]]()
    listing, cleaning = work.orphan_deadlines()

    def look(upkeep: Upkeep, job: Job) -> TaskOutcome:
        listings[job.name] = lambda: upkeep.orphans(job, older_than_ms)
        return TaskOutcome("orphans", job.name, "nothing to do: listed", False)

    report = _each(work, look)
    left = dict[str, Leftovers]()
    for name, found in listed_in_time(listings, listing).items():
        report.done = [outcome for outcome in report.done if outcome.subject != name]
        if isinstance(found, CalveError):
            report.failed[name] = found
        elif found.outcome is not None:
            report.done.append(found.outcome)
        else:
            left[name] = found
    if not left:
        return report
    reach("orphans.after-list")
    giving_up = not work.dry_run and work.session.rules.orphans_give_up_first
    state = work.session.publisher.give_up().state if giving_up else work.session.log.refresh_to_end()
    reach("orphans.after-give-up")
    for name, found in left.items():
        try:
            report.done.append(work.left_for_time(name) if cleaning.passed else found.remove(state))
        except CalveError as error:
            report.failed[name] = error
    return report


def _each(work: Work, task: Callable[[Upkeep, Job], TaskOutcome]) -> MaintenanceReport:
    """`task` for each table that exists; one table's failure does not stop the others."""
    report = MaintenanceReport()
    for upkeep, job in _jobs(work):
        try:
            if work.session.look(job.name, compare=False).table is not None:
                report.done.append(task(upkeep, job))
        except CalveError as error:
            report.failed[job.name] = error
    return report


def _jobs(work: Work) -> Iterator[tuple[Upkeep, Job]]:
    pipeline = work.session.pipeline
    for name in work.tables or pipeline.table_names:
        if pipeline.format_of(name) != ICEBERG and (upkeep := work.session.lake_of(name).upkeep) is not None:
            yield upkeep, Job(name, work.owned(name), work.wanted, work.dry_run, work.on_progress)

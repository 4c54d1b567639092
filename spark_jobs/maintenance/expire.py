"""Expiry of snapshots, on tables that are Calve's to shorten."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from calve.sink_core.config.table_maintenance import Expire
from calve.sink_core.error_codes.tables import BRANCH_RETENTION
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.staging import dropping, left_behind
from calve.sink_core.iceberg.maintenance.expiry import plan_expiry
from calve.sink_core.iceberg.maintenance.owned import why_not_owned
from calve.sink_core.iceberg.maintenance.shape import SNAPSHOTS, shape
from calve.sink_core.tables.maintenance_report import MaintenanceReport, TaskOutcome
from calve.spark_jobs.maintenance.work import Work, now_ms

TASK = "expire"


def expire(work: Work, settings: Expire) -> MaintenanceReport:
    """Expire old snapshots, with the files that only they name; never one between a tag of Calve's and the head.

    A table with a finding is left alone: its snapshots are what it may be resolved with.
    """

    def one(table: Table, name: str) -> TaskOutcome:
        before = shape(table)

        def nothing(why: str) -> TaskOutcome:
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)

        if why := why_not_owned(table.metadata, work.owned(name)):
            return nothing(why)
        work.session.committer().load_checked(name)
        if not work.dry_run:
            table = _without_left_behind(work, table, name)
        older_than_ms = int(settings.older_than * 1000)
        plan = plan_expiry(
            table.metadata,
            now_ms=now_ms(),
            older_than_ms=older_than_ms,
            retain_last=settings.retain_last,
            keep_at_most=settings.keep_at_most,
        )
        if not plan.going:
            return nothing(f"none of the {before[SNAPSHOTS]:,} snapshots may go yet")
        if plan.cut:
            raise TableUnusable(
                f"{name}: a branch keeps snapshots by rules of its own, and some above the tag {', '.join(plan.cut)} "
                f"would be expired",
                hint="take max-snapshot-age-ms and min-snapshots-to-keep off the branch (ALTER TABLE … REPLACE BRANCH)",
                code=BRANCH_RETENTION,
            )
        if work.dry_run:
            return TaskOutcome(TASK, name, f"{len(plan.going):,} snapshots would be expired", False, before, before)
        work.on_progress(f"{name}: expiring {len(plan.going):,} of {before[SNAPSHOTS]:,} snapshots")
        deleted = work.procedures.expire_snapshots(name, older_than_ms=plan.cutoff_ms, retain_last=settings.retain_last)
        after = shape(work.load(name))
        did = f"{len(plan.going):,} snapshots expired, {sum(deleted.values()):,} files deleted"
        return TaskOutcome(TASK, name, did, True, before, after)

    return work.each(one)


def _without_left_behind(work: Work, table: Table, name: str) -> Table:
    """The table without the staging branches of merges that have come to nothing, whose snapshots may then go."""
    calls = [dropping(table.metadata, branch) for branch in left_behind(table.metadata, now_ms())]
    with unreachable_as_ours(f"dropping branches of {name}"):
        for call in filter(None, calls):
            # Where it was dropped or moved meanwhile, the next expiry looks again.
            with suppress(CommitFailedException, CommitStateUnknownException):
                work.session.catalog.commit_table(table, call.requirements, call.updates)
    return work.load(name) if calls else table

"""Expiry of snapshots, on tables that are Calve's to shorten."""

from __future__ import annotations

from pyiceberg.table import Table

from sink_core.config.maintenance import Expire
from sink_core.errors import TableUnusable
from sink_core.maintenance.expiry import plan_expiry
from sink_core.maintenance.owned import why_not_owned
from sink_core.maintenance.report import MaintenanceReport, TaskOutcome
from sink_core.maintenance.shape import SNAPSHOTS, shape
from spark_jobs.maintenance.work import Work, now_ms

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
        older_than_ms = int(settings.older_than * 1000)
        plan = plan_expiry(
            table.metadata, now_ms=now_ms(), older_than_ms=older_than_ms, retain_last=settings.retain_last
        )
        if not plan.going:
            return nothing(f"none of the {before[SNAPSHOTS]:,} snapshots may go yet")
        if plan.cut:
            raise TableUnusable(
                f"{name}: a branch keeps snapshots by rules of its own, and some above the tag {', '.join(plan.cut)} "
                f"would be expired",
                hint="take max-snapshot-age-ms and min-snapshots-to-keep off the branch (ALTER TABLE … REPLACE BRANCH)",
            )
        if work.dry_run:
            return TaskOutcome(TASK, name, f"{len(plan.going):,} snapshots would be expired", False, before, before)
        work.on_progress(f"{name}: expiring {len(plan.going):,} of {before[SNAPSHOTS]:,} snapshots")
        deleted = work.procedures.expire_snapshots(name, older_than_ms=plan.cutoff_ms, retain_last=settings.retain_last)
        after = shape(work.load(name))
        did = f"{len(plan.going):,} snapshots expired, {sum(deleted.values()):,} files deleted"
        return TaskOutcome(TASK, name, did, True, before, after)

    return work.each(one)

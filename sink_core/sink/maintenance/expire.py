"""Expiry of snapshots, on tables that are Calve's to shorten."""

from __future__ import annotations

from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import Expire
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.maintenance.expiry import drop_left_behind, plan_expiry
from calve.sink_core.iceberg.maintenance.owned import why_not_owned
from calve.sink_core.iceberg.maintenance.shape import SNAPSHOTS, shape
from calve.sink_core.sink.maintenance.work import Work, now_ms

TASK = "expire"


def expire(work: Work, settings: Expire) -> MaintenanceReport:
    """Expire old snapshots, with the files that only they name; never one between a tag of Calve's and the head.

    A table with a finding is left alone: its snapshots are what it may be resolved with.
    """

    def one(table: Table, name: str) -> TaskOutcome:
        before = shape(table)

        def nothing(why: str) -> TaskOutcome:
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)

        if why := why_not_owned(table, work.owned(name)):
            return nothing(why)
        work.session.committer().load_checked(name)
        if not work.dry_run and drop_left_behind(work.session.catalog, table, now_ms()):
            table = work.load(name)
        older_than_ms = int(settings.older_than * 1000)
        plan = plan_expiry(
            table,
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
                code=Code.BRANCH_RETENTION,
            )
        if work.dry_run:
            return TaskOutcome(TASK, name, f"{len(plan.going):,} snapshots would be expired", False, before, before)
        work.on_progress(f"{name}: expiring {len(plan.going):,} of {before[SNAPSHOTS]:,} snapshots")
        deleted = work.procedures.expire_snapshots(name, older_than_ms=plan.cutoff_ms, retain_last=settings.retain_last)
        after = shape(work.load(name))
        did = f"{len(plan.going):,} snapshots expired, {sum(deleted.values()):,} files deleted"
        return TaskOutcome(TASK, name, did, True, before, after)

    return work.each(one)

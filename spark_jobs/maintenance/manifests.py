"""Rewriting manifests: each batch adds one, and every commit and every scan pays for each."""

from __future__ import annotations

from pyiceberg.table import Table

from calve.sink_core.config.maintenance import Manifests
from calve.sink_core.maintenance.report import MaintenanceReport, TaskOutcome
from calve.sink_core.maintenance.shape import MANIFESTS, shape
from calve.spark_jobs.maintenance.work import Work

TASK = "manifests"


def rewrite_manifests(work: Work, settings: Manifests) -> MaintenanceReport:
    """Rewrite the manifests of tables that have at least `settings.min_count`."""

    def one(table: Table, name: str) -> TaskOutcome:
        before = shape(table)
        count = before[MANIFESTS]
        if why := work.why_left(table, name):
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)
        if count < settings.min_count:
            why = f"{count:,} manifests, fewer than {settings.min_count:,} (min_count)"
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)
        if work.dry_run:
            return TaskOutcome(TASK, name, f"{count:,} manifests would be rewritten", False, before, before)
        work.on_progress(f"{name}: rewriting {count:,} manifests")
        work.procedures.rewrite_manifests(name)
        after = shape(work.load(name))
        return TaskOutcome(TASK, name, f"{count:,} manifests into {after[MANIFESTS]:,}", True, before, after)

    return work.each(one)

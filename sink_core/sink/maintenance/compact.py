"""Compaction: partitions with many small files are rewritten into few, and files with many deletes without what these
delete, so that readers need not match them any more. Manifests likewise: each batch adds one, and every commit and
every scan pays for each.

Appends and compaction both commit by compare-and-swap; whoever comes second builds its commit again on the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import Compact, Manifests
from calve.sink_core.control.maintenance_report import MaintenanceReport, TaskOutcome
from calve.sink_core.errors import RetriableError
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.maintenance.compaction import (
    Compactable,
    PartitionFiles,
    compactable,
    conditions,
    due,
    within,
)
from calve.sink_core.iceberg.maintenance.shape import DATA_FILES, DELETE_FILES, MANIFESTS, shape
from calve.sink_core.sink.maintenance.work import Work, now_ms

TASK, MANIFESTS_TASK = "compact", "manifests"

GROUP_BYTES = 4 * 2**30
"""Rewritten and committed at a time: a run that is ended keeps what it has done so far."""


def compact(work: Work, settings: Compact) -> MaintenanceReport:
    """Rewrite partitions with many small files, at most `settings.max_bytes` over all tables."""
    left = settings.max_bytes

    def one(table: Table, name: str) -> TaskOutcome:
        nonlocal left
        work.on_progress(f"{name}: looking for small files")
        before = shape(table)
        if why := work.why_left(table, name):
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)
        found = compactable(
            table,
            work.session.pipeline.target_file_size(name),
            settled_before_ms=now_ms() - int(settings.lag * 1000),
            max_deletes=settings.max_deletes,
        )
        wanted = due(found.partitions, min_files=settings.min_files)
        chosen = within(wanted, left) if left > 0 else []
        if not chosen:
            why = (
                f"max_bytes is used up, {len(wanted):,} partitions wait for the next run"
                if wanted
                else f"{sum(p.small for p in found.partitions):,} small files of {before[DATA_FILES]:,}, in no "
                f"partition {settings.min_files} (min_files) older than lag{_few_deletes(before, settings)}"
            )
            return TaskOutcome(TASK, name, f"nothing to do: {why}", False, before, before)
        left -= sum(partition.bytes for partition in chosen)
        if work.dry_run:
            would = f"{_named(chosen)} in {len(chosen):,} partitions would be rewritten"
            return TaskOutcome(TASK, name, would, False, before, before)
        did = _rewrite(work, table, name, found, chosen, settings)
        if len(wanted) > len(chosen):
            did += f"; {len(wanted) - len(chosen):,} partitions wait for the next run (max_bytes)"
        return TaskOutcome(TASK, name, did, True, before, shape(work.load(name)))

    return work.each(one)


def _rewrite(
    work: Work, table: Table, name: str, found: Compactable, chosen: Sequence[PartitionFiles], settings: Compact
) -> str:
    options = {
        "min-input-files": str(settings.min_files),
        "target-file-size-bytes": str(found.target_bytes),
        "max-file-group-size-bytes": str(GROUP_BYTES),
        "partial-progress.enabled": "true",
    }
    if any(partition.deleted_from for partition in chosen):
        # Iceberg counts as `live_files` does; what no file needs any more, it removes in a commit of its own.
        options |= {"delete-file-threshold": str(settings.max_deletes), "remove-dangling-deletes": "true"}
    strategy = settings.strategy if found.is_sorted else "binpack"
    files = into = failed = 0
    for where in conditions(table, chosen, catalog=work.session.pipeline.catalog.name):
        work.on_progress(f"{name}: {files:,} files rewritten of {_named(chosen)}")
        done = work.procedures.rewrite_data_files(name, strategy=strategy, where=where, options=options)
        files, into, failed = files + done.files, into + done.into, failed + done.failed
    if failed:
        raise RetriableError(
            f"{name}: {failed:,} files could not be rewritten, {files:,} were",
            hint="they stay as they are, and the next run tries again; Spark's log says why",
            code=Code.PROCEDURE,
        )
    return f"{files:,} files into {into:,}, in {len(chosen):,} partitions"


def _named(chosen: Sequence[PartitionFiles]) -> str:
    small, deleted_from = sum(p.small for p in chosen), sum(p.deleted_from for p in chosen)
    return f"{small:,} small files" + (f" and {deleted_from:,} with many deletes" if deleted_from else "")


def _few_deletes(before: Mapping[str, int], settings: Compact) -> str:
    return f", no file with {settings.max_deletes} deletes (max_deletes)" if before[DELETE_FILES] else ""


def rewrite_manifests(work: Work, settings: Manifests) -> MaintenanceReport:
    """Rewrite the manifests of tables that have at least `settings.min_count`."""

    def one(table: Table, name: str) -> TaskOutcome:
        before = shape(table)
        count = before[MANIFESTS]
        if why := work.why_left(table, name):
            return TaskOutcome(MANIFESTS_TASK, name, f"nothing to do: {why}", False, before, before)
        if count < settings.min_count:
            why = f"{count:,} manifests, fewer than {settings.min_count:,} (min_count)"
            return TaskOutcome(MANIFESTS_TASK, name, f"nothing to do: {why}", False, before, before)
        if work.dry_run:
            return TaskOutcome(MANIFESTS_TASK, name, f"{count:,} manifests would be rewritten", False, before, before)
        work.on_progress(f"{name}: rewriting {count:,} manifests")
        work.procedures.rewrite_manifests(name)
        after = shape(work.load(name))
        return TaskOutcome(MANIFESTS_TASK, name, f"{count:,} manifests into {after[MANIFESTS]:,}", True, before, after)

    return work.each(one)

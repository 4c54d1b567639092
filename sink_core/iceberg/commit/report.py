"""What a commit found or did at one table, for those who report it."""

from __future__ import annotations

from calve.sink_core.iceberg.commit.plan import Attempt, CommitPlan
from calve.sink_core.iceberg.commit.view import summary_of_head, totals_in
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.history.record import SummaryKeys, from_summary
from calve.sink_core.tables.history.shares import manifests_of


def report(plan: CommitPlan, keys: SummaryKeys, attempt: Attempt | None = None) -> TableCommit:
    """What the table says by the attempt that landed; without one by what it had, as there was nothing new."""
    view = plan.view
    if attempt is not None:
        own, summary = from_summary(keys, attempt.summary), attempt.summary
    else:
        own = view.tagged.own if view.tagged else None
        summary = summary_of_head(plan.table.metadata)
    rows, files, size = totals_in(summary)
    return TableCommit(
        table=view.table,
        table_uuid=view.uuid,
        snapshot_id=attempt.snapshot_id if attempt else view.tag,
        stored_offset=plan.stored_offset if attempt else view.stored_offset,
        valid_through_ms=own.valid_through_ms if own else None,
        landed=attempt is not None,
        batches=tuple(dict.fromkeys(logged.event.batch_id for logged in plan.events)),
        rows=sum(logged.event.rows for logged in plan.events),
        files=sum(manifest.files for manifest in manifests_of(plan.events)),
        total_rows=rows,
        total_files=files,
        total_bytes=size,
        conflicts=plan.conflicts,
        dropped=plan.dropped,
    )

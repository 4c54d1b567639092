"""What `calve run` does with a sink."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from calve.orchestration.cli.boundary import raise_failures
from calve.orchestration.cli.output import ending_document, error_document, say, say_json, working
from calve.orchestration.cli.replay import range_document, say_range
from calve.orchestration.cli.run import commit_document
from calve.orchestration.wording import by_text, dropped_text
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.sink.batches import BatchReport
from calve.sink_core.sink.run import RunReport, run_pipeline
from calve.spark_jobs.engine import session_on_spark


def run(pipeline: SinkPipeline, bounds: Bounds, *, as_json: bool) -> None:
    """Plan, write, publish and commit until it is caught up."""
    with working("connecting") as status, session_on_spark(pipeline) as session:
        report = run_pipeline(
            session,
            bounds=bounds,
            on_progress=lambda step: status.update(f"{step.phase}: {step.message}"),
            on_batch=None if as_json else say_batch,
        )
    if as_json:
        say_json(_run_document(report))
    else:
        _say_run(report)
    raise_failures(report, as_json=as_json)


def say_batch(batch: BatchReport) -> None:
    """What became of one batch of a run, and what still waits."""
    seconds = ", ".join(f"{step} {spent_s:.2f} s" for step, spent_s in batch.seconds.items())
    others = "".join(f", {number:,} {what}" for what, number in batch.not_stored.items())
    rest = f"; {batch.lag_after:,} offsets wait, {batch.rest_s:,.0f} s at this rate" if batch.lag_after else ""
    by = by_text(batch.written_by)
    say(f"batch {batch.batch_id}: {batch.verdict.value}: {batch.records:,} records{others} ({seconds}){by}{rest}")
    for table, dropped in batch.dropped.items():
        say(f"    {table} has no column for {dropped_text(dropped)}", style="yellow")


def _say_run(report: RunReport) -> None:
    rows: dict[str, int] = {}
    for round_ in report.commits:
        for landed in round_.landed:
            rows[landed.table] = rows.get(landed.table, 0) + landed.rows
    for table, added in rows.items():
        say(f"{table}: {added:,} rows committed")
    for job in report.history:
        say_range(job)
    say(report.ended)


def _run_document(report: RunReport) -> dict[str, Any]:
    return {
        **ending_document(report),
        "failed": {table: error_document(error) for table, error in report.failed.items()},
        "batches": [asdict(batch) for batch in report.batches],
        "commits": [commit_document(commit) for commit in report.commits],
        "history": [range_document(job) for job in report.history],
    }

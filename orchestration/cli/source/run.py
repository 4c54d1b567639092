"""What `calve run` does with a source."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from calve.orchestration.cli.output import ending_document, error_document, say, say_json, working
from calve.orchestration.wording import by_text, bytes_text, counted

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.control.rounds import Bounds
    from calve.sink_core.source.batches import SendReport
    from calve.sink_core.source.run import SourceReport


def run(pipeline: SourcePipeline, bounds: Bounds, *, as_json: bool) -> None:
    """Send until it is caught up."""
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.run import run_source
    from calve.spark_jobs.slots import on_spark

    with working("connecting") as status, on_spark(SourcePlane, pipeline) as plane:
        report = run_source(
            plane,
            bounds=bounds,
            on_progress=lambda step: status.update(f"{step.phase}: {step.message}"),
            on_batch=(lambda _batch: None) if as_json else say_batch,
        )
    if as_json:
        say_json(_document(report))
    else:
        say(f"{counted(report.records, 'record', 'records')} sent; {report.ended}")


def say_batch(batch: SendReport) -> None:
    """What one generation sent, and what still waits."""
    seconds = ", ".join(f"{step} {spent_s:.2f} s" for step, spent_s in batch.seconds.items())
    of = f" by {counted(batch.slots, 'slot', 'slots')}" if batch.slots else ""
    rest = f"; {batch.lag_after:,} records wait" if batch.lag_after else ""
    sent = f"{counted(batch.records, 'record', 'records')}, {bytes_text(batch.bytes)}{of}"
    say(f"batch {batch.batch_id or 'none'}: {sent} ({seconds}){by_text(batch.written_by)}{rest}")
    if batch.dropped:
        say(f"    {counted(batch.dropped, 'row', 'rows')} dropped by the source")
    if batch.dead_letters:
        say(f"    {counted(batch.dead_letters, 'row', 'rows')} to the dead letters", style="yellow")
    if batch.failed is not None:
        say("    a slot failed; what the slots had committed stays", style="red")


def _document(report: SourceReport) -> dict[str, Any]:
    batches = [
        {
            "batch_id": batch.batch_id,
            "records": batch.records,
            "bytes": batch.bytes,
            "dropped": batch.dropped,
            "dead_letters": batch.dead_letters,
            "offsets_moved": batch.moved,
            "slots": batch.slots,
            "overtaken": batch.overtaken,
            "lag_after": batch.lag_after,
            "seconds": dict(batch.seconds),
            "written_by": asdict(batch.written_by) if batch.written_by else None,
            "failed": error_document(batch.failed) if batch.failed else None,
        }
        for batch in report.batches
    ]
    return {**ending_document(report), "batches": batches}

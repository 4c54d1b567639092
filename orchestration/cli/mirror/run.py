"""What `calve run` does with a mirror."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from calve.orchestration.cli.output import ending_document, error_document, say, say_json, working
from calve.orchestration.wording import by_text, bytes_text, counted

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.control.rounds import Bounds
    from calve.sink_core.mirror.batches import CopyReport
    from calve.sink_core.mirror.run import MirrorReport


def run(pipeline: MirrorPipeline, bounds: Bounds, *, as_json: bool) -> None:
    """Copy until it is caught up."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.run import run_mirror
    from calve.spark_jobs.slots import on_spark

    with working("connecting") as status, on_spark(MirrorPlane, pipeline) as plane:
        report = run_mirror(
            plane,
            bounds=bounds,
            on_progress=lambda step: status.update(f"{step.phase}: {step.message}"),
            on_batch=(lambda _batch: None) if as_json else say_batch,
        )
    if as_json:
        say_json(_document(report))
    else:
        say(f"{counted(report.records, 'record', 'records')} copied; {report.ended}")


def say_batch(batch: CopyReport) -> None:
    """What one generation copied, and what is still pending."""
    seconds = ", ".join(f"{step} {spent_s:.2f} s" for step, spent_s in batch.seconds.items())
    of = f" by {counted(batch.slots, 'slot', 'slots')}" if batch.slots else ""
    rest = f"; {batch.lag_after:,} offsets are pending" if batch.lag_after else ""
    copied = f"{counted(batch.records, 'record', 'records')}, {bytes_text(batch.bytes)}{of}"
    say(f"batch {batch.batch_id or 'none'}: {copied} ({seconds}){by_text(batch.written_by)}{rest}")
    if batch.adjusted:
        say(f"    {counted(batch.adjusted, 'record', 'records')} adjusted", style="yellow")
    if batch.failed is not None:
        say("    a slot failed; what the slots had committed stays", style="red")


def _document(report: MirrorReport) -> dict[str, Any]:
    batches = [
        {
            "batch_id": batch.batch_id,
            "records": batch.records,
            "bytes": batch.bytes,
            "adjusted": batch.adjusted,
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

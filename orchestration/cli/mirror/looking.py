"""What `calve plan` and `status` do with a mirror."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from calve.orchestration.cli.output import say, say_json, say_table, working
from calve.orchestration.wording import by_text, bytes_text, counted

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.mirror.preview import CopyPreview
    from calve.sink_core.mirror.status import CopiedTopic, MirrorStatus


def plan(pipeline: MirrorPipeline, *, as_json: bool) -> None:
    """What the next generation would copy, and which remote topics it would make."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.preview import preview
    from calve.sink_core.tasks import InProcessTasks, TasksBySize

    slots = InProcessTasks(pipeline.spark.tasks or os.cpu_count() or 1)
    tasks = TasksBySize(slots, pipeline.config.batch.spark_from_records)
    with working("reading positions and end offsets"), MirrorPlane(pipeline, tasks=tasks) as plane:
        plane.read_only()
        planned = preview(plane)
    if as_json:
        say_json({"bootstrapped": planned.bootstrapped, "batch": _plan_document(planned) if planned.ranges else None})
        return
    if not planned.bootstrapped:
        say(f"pipeline {pipeline.name} has not run yet: the first run begins at start: {pipeline.config.source.start}")
    if planned.ranges:
        _say_plan(planned)
    else:
        say("nothing to copy")
    if planned.created:
        say(f"topics to be created: {', '.join(planned.created)}")


def status(pipeline: MirrorPipeline, *, as_json: bool) -> None:
    """Lag, what was copied, and what retention leaves."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.status import status as look

    with working("looking"), MirrorPlane(pipeline) as plane:
        report = look(plane)
    if as_json:
        say_json(report.to_json())
    else:
        _say_status(report)


def _plan_document(planned: CopyPreview) -> dict[str, Any]:
    ranges = [[r.topic, r.partition, r.start, r.end] for r in planned.ranges]
    return {
        "offsets": planned.offsets,
        "estimated_bytes": planned.estimated_bytes,
        "slots": planned.slots,
        "ranges": ranges,
        "remote_topics": dict(planned.remotes),
        "topics_created": list(planned.created),
    }


def _say_plan(planned: CopyPreview) -> None:
    size, slots = bytes_text(planned.estimated_bytes), counted(planned.slots, "slot", "slots")
    say(f"next batch: {planned.offsets:,} offsets, about {size}, by {slots}")
    rows = [
        [r.topic, str(r.partition), f"{r.start:,}", f"{r.end:,}", f"{r.span:,}", planned.remotes[r.topic]]
        for r in planned.ranges
    ]
    say_table("ranges", ["topic", "partition", "start", "end", "offsets", "remote topic"], rows)


def _say_status(report: MirrorStatus) -> None:
    started = "" if report.bootstrapped else ", has not run yet"
    say(f"pipeline {report.pipeline}, {report.source} to {report.target}{started}: lag {report.lag:,}")
    if report.paused:
        say(f"paused since {report.paused.since} by {report.paused.by}: {report.paused.reason}", style="yellow")
    if last := report.last_generation:
        ended = f"ended: {last.ended}" if last.ended else "has not ended"
        moved = f"{counted(last.records, 'record', 'records')}, {bytes_text(last.bytes)}"
        by = f"{counted(last.slots, 'slot', 'slots')}, {counted(last.transactions, 'transaction', 'transactions')}"
        say(f"last batch {last.batch_id} of {last.started_at}: {moved} by {by}; {ended}{by_text(last.written_by)}")
    for batch in report.in_flight:
        say(f"in flight: {batch.batch_id}, for {batch.age_s:,.0f} s, by Calve {batch.calve_version}")
    if (log := report.control_topic) and log.oldest:
        say(str(log))
    copied = f"{counted(report.records, 'record', 'records')} copied in all"
    say(f"{copied}, {bytes_text(report.bytes)} of them by what the control topic still tells")
    columns = ["topic", "remote topic", "partitions", "copied", "lag", "oldest pending", "until retention"]
    say_table("topics", columns, [_row(topic) for topic in report.topics])
    for topic in report.topics:
        if topic.foreign:
            said = f"others have written to {counted(topic.foreign, 'partition', 'partitions')} of {topic.remote}"
            say(said, style="red")
    if report.positions_pending:
        say("a slot holds a transaction open: the positions are not held against the control topic", style="yellow")
    for topic, why in report.left_out.items():
        say(f"not copied: {topic}: {why}")
    for blocker in report.blockers:
        say(f"blocked: {blocker}", style="yellow")
    for finding in report.findings:
        say(finding, style="red")


def _row(topic: CopiedTopic) -> list[str]:
    age = "-" if topic.oldest_age_s is None else f"{topic.oldest_age_s:,.0f} s"
    left = "-" if topic.until_loss is None else f"{topic.until_loss:,} records"
    remote = topic.remote if topic.exists else f"{topic.remote} (not created yet)"
    return [topic.topic, remote, f"{topic.partitions:,}", f"{topic.records:,}", f"{topic.lag:,}", age, left]

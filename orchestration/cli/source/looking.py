"""What `calve plan` and `status` do with a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calve.orchestration.cli.output import say, say_json, say_table, working
from calve.orchestration.wording import by_text, bytes_text, counted

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.source.status import SourceStatus

_MOST_ROWS = 50


def plan(pipeline: SourcePipeline, *, as_json: bool) -> None:
    """What the next generation would read."""
    from calve.sink_core.source.base import Limits
    from calve.sink_core.source.plane import SourcePlane

    batch = pipeline.config.batch
    with working("asking the source"), SourcePlane(pipeline) as plane:
        ran = plane.read_only()
        work = plane.source.plan(plane.log.state.offsets, Limits(batch.max_records, batch.max_bytes))
    if as_json:
        parts = [
            {
                "partition": dict(each.partition),
                "from": dict(each.start) if each.start is not None else None,
                "to": dict(each.bound),
                "records": each.size,
            }
            for each in work
        ]
        say_json({"bootstrapped": ran, "batch": parts or None})
        return
    if not ran:
        say(f"pipeline {pipeline.name} has not run yet: the first run begins at the source's beginning")
    if not work:
        say("nothing to read")
        return
    rows = [
        [each.partition.json, each.start.json if each.start is not None else "-", each.bound.json, f"{each.size:,}"]
        for each in work[:_MOST_ROWS]
    ]
    say(f"next batch: about {counted(sum(each.size for each in work), 'record', 'records')}")
    say_table("parts", ["source partition", "from", "to", "records"], rows)
    if len(work) > len(rows):
        say(f"and {len(work) - len(rows):,} more; --json has all")


def status(pipeline: SourcePipeline, *, as_json: bool) -> None:
    """What is pending, what was sent, and the source offsets."""
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.status import status as look

    with working("looking"), SourcePlane(pipeline) as plane:
        report = look(plane)
    if as_json:
        say_json(report.to_json())
    else:
        _say_status(report)


def _say_status(report: SourceStatus) -> None:
    started = "" if report.bootstrapped else ", has not run yet"
    held = f", the system holds {bytes_text(report.held_bytes)} for it" if report.held_bytes is not None else ""
    at_most = "at most " if report.age_is_bound else ""
    age = f" for {at_most}{report.oldest_age_s:,.0f} s" if report.oldest_age_s is not None else ""
    say(f"pipeline {report.pipeline}, {report.source} to {report.target}{started}: {report.waiting} waiting{age}{held}")
    if report.paused:
        say(f"paused since {report.paused.since} by {report.paused.by}: {report.paused.reason}", style="yellow")
    if last := report.last_batch:
        ended = f"ended: {last.ended}" if last.ended else "has not ended"
        by = f"{counted(last.slots, 'slot', 'slots')}, {counted(last.transactions, 'transaction', 'transactions')}"
        sent = f"{counted(last.records, 'record', 'records')} by {by}"
        say(f"last batch {last.batch_id} of {last.started_at}: {sent}; {ended}{by_text(last.written_by)}")
    for batch in report.in_flight:
        say(f"in flight: {batch.batch_id}, for {batch.age_s:,.0f} s, by Calve {batch.calve_version}")
    if (log := report.control_topic) and log.oldest:
        say(str(log))
    letters = f", {counted(report.dead_letters, 'row', 'rows')} to the dead letters" if report.dead_letters else ""
    say(f"{counted(report.records, 'record', 'records')} sent in all{letters}")
    rows = [[_text(each.partition), _text(each.offset)] for each in report.offsets[:_MOST_ROWS]]
    say_table("source offsets", ["source partition", "offset"], rows)
    if len(report.offsets) > len(rows):
        say(f"and {len(report.offsets) - len(rows):,} more; --json has all")
    for blocker in report.blockers:
        say(f"blocked: {blocker}", style="yellow")
    for finding in report.findings:
        say(finding, style="red")


def _text(values: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())

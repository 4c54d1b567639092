"""What `calve plan`, `status` and `verify` do with a sink."""

from __future__ import annotations

import os
from typing import Any

import typer

from calve.orchestration.cli.output import say, say_json, say_table, say_verdict, working
from calve.orchestration.wording import by_text, counted, dropped_text
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import EXIT_STOPPED
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.schema_preview import SchemaPreview, schema_preview
from calve.sink_core.sink.status import LastBatch, StatusReport, TableStatus
from calve.sink_core.sink.status import status as look
from calve.sink_core.sink.verify.proof import verify as prove
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.proof import VerifyReport


def plan(pipeline: SinkPipeline, *, as_json: bool) -> None:
    """What the next batch would read, and which tables it would change by a sample of the pending records."""
    with working("reading positions and end offsets"), Session.open(pipeline) as session:
        ran = session.read_only() and session.log.state.last_publish is not None
        tasks = pipeline.spark.tasks or os.cpu_count() or 1
        planner = Planner(session, max_tasks=tasks)
        planned = planner.preview() if ran else planner.preview_first()
        schema = schema_preview(session, planned) if planned else SchemaPreview()
    if as_json:
        say_json({"bootstrapped": ran, "batch": _plan_document(planned, schema) if planned else None})
        return
    if not ran:
        say(f"pipeline {pipeline.name} has not run yet: the first run begins at start: {pipeline.config.source.start}")
    if planned is None:
        say("nothing to read")
    else:
        _say_plan(planned, schema)


def status(pipeline: SinkPipeline, *, as_json: bool) -> None:
    """Lag, batches in flight or not committed, tables and what retention leaves."""
    with working("looking"), Session.open(pipeline) as session:
        report = look(session)
    if as_json:
        say_json(report.to_json())
    else:
        _say_status(report)


def verify(pipeline: SinkPipeline, *, deep: bool, since_ms: int | None, as_json: bool) -> None:
    """The proof by ledger, control topic and tables."""
    with working("connecting") as spinner, Session.open(pipeline) as session:
        report = prove(session, deep=deep, since_ms=since_ms, on_progress=spinner.update)
    if as_json:
        say_json(report.to_json())
    else:
        _say_proof(report)
    if not report.proven:
        raise typer.Exit(EXIT_STOPPED)


def _plan_document(planned: BatchPlan, schema: SchemaPreview) -> dict[str, Any]:
    ranges = [[r.topic, r.partition, r.start, r.end] for r in planned.ranges if r.span]
    return {
        "predecessor": planned.predecessor,
        "offsets": planned.offsets,
        "estimated_bytes": planned.estimated_bytes,
        "tasks": len(planned.tasks),
        "ranges": ranges,
        "tables_created": list(schema.created),
        "schema_changes": {"sampled_records": schema.sampled, "tables": schema.changes},
        "dropped_fields": schema.dropped,
    }


def _say_plan(planned: BatchPlan, schema: SchemaPreview) -> None:
    size = planned.estimated_bytes / 2**20
    tasks = counted(len(planned.tasks), "task", "tasks")
    say(f"next batch: {planned.offsets:,} offsets, about {size:,.1f} MiB, in {tasks}")
    rows = [[r.topic, str(r.partition), f"{r.start:,}", f"{r.end:,}", f"{r.span:,}"] for r in planned.ranges if r.span]
    say_table("ranges", ["topic", "partition", "start", "end", "offsets"], rows)
    if schema.created:
        say(f"tables to be created: {', '.join(schema.created)}")
    for table, changes in schema.changes.items():
        say(f"{table} will be changed: {', '.join(changes)} (by a sample of {schema.sampled:,} records that wait)")
    for table, dropped in schema.dropped.items():
        say(f"{table} has no column for {dropped_text(dropped)} in {schema.sampled:,} records sampled", style="yellow")


def _moved(last: LastBatch) -> str:
    others = "".join(f", {number:,} {what}" for what, number in last.not_stored.items())
    return f"{last.records:,} records, {last.value_bytes:,} bytes{others}"


def _say_status(report: StatusReport) -> None:
    started = "" if report.bootstrapped else ", has not run yet"
    say(f"pipeline {report.pipeline}{started}: lag {report.lag:,}")
    if report.paused:
        say(f"paused since {report.paused.since} by {report.paused.by}: {report.paused.reason}", style="yellow")
    if last := report.last_batch:
        say(f"last batch {last.batch_id} at {last.published_at}: {_moved(last)}{by_text(last.written_by)}")
    for batch in report.in_flight:
        say(f"in flight: {batch.batch_id}, for {batch.age_s:,.0f} s, by Calve {batch.calve_version}")
    for topic in report.topics:
        # Before the first run nothing says which records it will read.
        told = report.bootstrapped and topic.until_loss is not None
        left = f", {topic.until_loss:,} records until retention reaches unread ones" if told else ""
        say(f"topic {topic.topic}: {counted(topic.partitions, 'partition', 'partitions')}, lag {topic.lag:,}{left}")
    if (log := report.control_topic) and log.oldest:
        say(str(log))
    say_table("tables", ["table", "rows", "not committed", "snapshot", "valid through"], _table_rows(report.tables))
    for table in report.tables:
        if table.dropped:
            say(f"{table.table} has no column for {dropped_text(table.dropped)} in the last batches", style="yellow")
    for topic, why in report.left_out.items():
        say(f"{topic}: {why}")
    for misfit in report.misfits:
        say(str(misfit), style="red")
    for blocker in report.blockers:
        say(f"blocked: {blocker}", style="yellow")
    for finding in [*report.findings, *(t.finding for t in report.tables if t.finding)]:
        say(finding, style="red")


def _table_rows(tables: tuple[TableStatus, ...]) -> list[list[str]]:
    return [
        [
            table.table,
            ("?" if table.rows is None else f"{table.rows:,}") if table.exists else "not created yet",
            f"{table.uncommitted.rows:,} rows of {counted(table.uncommitted.batches, 'batch', 'batches')}",
            table.head_snapshot or "-",
            table.valid_through or "-",
        ]
        for table in tables
    ]


def _say_proof(report: VerifyReport) -> None:
    for violation in report.violations:
        say(f"{violation.kind}: {violation.subject}: {violation.message}", style="red")
        for place in violation.ranges:
            say(f"    {place}")
        if violation.batches:
            say(f"    batches: {', '.join(violation.batches)}")
    for kind, number in report.left_out.items():
        say(f"{kind}: {number:,} more not shown")
    for table, why in report.not_verifiable.items():
        say(f"not verifiable: {table}: {why}", style="red")
    for part in report.not_checked:
        say(f"not checked: {part.subject}: {part.why}", style="yellow")
    for table, batches in ((table, batches) for table, batches in report.uncommitted.items() if batches):
        say(f"{table}: {batches} batches published, not yet committed")
    say(", ".join(f"{number:,} {what}" for what, number in report.facts.items()))
    of = f" for what was planned since {report.since}" if report.since else ""
    say_verdict(report.verdict, f"proven{of}")

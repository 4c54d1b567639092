"""`calve replay`: records that were published before are read again, for one table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from orchestration.cli.output import say, say_json, working

if TYPE_CHECKING:
    from spark_jobs.range_job import RangeReport


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "replay")(replay)


def replay(
    file: PipelineFile,
    table: Annotated[str, typer.Option(metavar="NAME", help="The table that gets them.", show_default=False)],
    refill: Annotated[
        bool, typer.Option("--refill", help="Instead, what the table lost; the commit of it resolves its finding.")
    ] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Read again, for one table, what was published without it. Moves no position, and adds no record twice.

    Exit code 1: it can't be known what the table lacks, retention has taken it, or the table was changed meanwhile.
    """
    from sink_core.config.load import load
    from sink_core.session import Session
    from spark_jobs.range_job import RangeJobs
    from spark_jobs.runner import SparkRunner

    pipeline = load(file, connections)
    with working("connecting") as status, Session.open(pipeline) as session, SparkRunner(pipeline.spark) as runner:
        session.read_only()
        # Before anything is bound: only what was published can be read again.
        _ = session.pipeline_id
        session.bind()
        jobs = RangeJobs(session, runner, on_progress=lambda step: status.update(f"{step.phase}: {step.message}"))
        reports = [jobs.refill(table)] if refill else list(jobs.history_to_end(table))
    if as_json:
        say_json({"jobs": [range_document(report) for report in reports]})
    else:
        for report in reports:
            say_range(report)


def say_range(report: RangeReport) -> None:
    """One line about a range job."""
    if report.verdict is None:
        say(report.ended)
    else:
        say(f"range job {report.batch_id}: {report.verdict.value}: {report.rows:,} rows; {report.ended}")


def range_document(report: RangeReport) -> dict[str, Any]:
    """Snapshot ids as text: they exceed what JSON readers keep exactly."""
    commit = {**asdict(report.commit), "snapshot_id": str(report.commit.snapshot_id)} if report.commit else None
    return {**asdict(report), "verdict": report.verdict.value if report.verdict else None, "commit": commit}

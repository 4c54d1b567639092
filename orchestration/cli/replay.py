"""`calve replay`: records that were published before are read again, for one table.

What the table never got (its history), what it lost (`--refill`), or what it has: then the rows are replaced.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from orchestration.cli.output import say, say_json, working
from sink_core.errors import ConfigError

if TYPE_CHECKING:
    from sink_core.range_jobs.selected import Wanted
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
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Instead, replace the rows of batches planned then or later."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Replace the rows of batches planned before then.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="TOPIC/P:START-END", help="Replace the rows of these offsets; several times."),
    ] = None,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Read again, for one table, what was published without it. Moves no position, and adds no record twice.

    With --from, --to or --range the rows that the table has of these are replaced; with times and ranges those of both.
    Times are ISO 8601 with their zone, and compared with `planned_at` of the ledger.

    Exit code 1: it can't be known what the table lacks, retention has taken it, or the table was changed meanwhile.
    """
    from sink_core.config.load import load
    from sink_core.session import Session
    from spark_jobs.range_job import RangeJobs
    from spark_jobs.runner import SparkRunner

    wanted = _wanted(from_, to, ranges or [])
    if refill and wanted is not None:
        raise ConfigError(
            "--refill reads what the table lost, --from, --to and --range replace what it has",
            hint="choose one of them",
        )
    pipeline = load(file, connections)
    with working("connecting") as status, Session.open(pipeline) as session, SparkRunner(pipeline.spark) as runner:
        session.read_only()
        # Before anything is bound: only what was published can be read again.
        _ = session.pipeline_id
        session.bind()
        jobs = RangeJobs(session, runner, on_progress=lambda step: status.update(f"{step.phase}: {step.message}"))
        if wanted is not None:
            reports = [jobs.replay(table, wanted)]
        else:
            reports = [jobs.refill(table)] if refill else list(jobs.history_to_end(table))
    if as_json:
        say_json({"jobs": [range_document(report) for report in reports]})
    else:
        for report in reports:
            say_range(report)


def _wanted(from_: str | None, to: str | None, ranges: list[str]) -> Wanted | None:
    """What is to be replaced; None if nothing is said of that."""
    from orchestration.cli.times import moment_ms, offset_range
    from sink_core.range_jobs.selected import Wanted

    if from_ is None and to is None and not ranges:
        return None
    return Wanted(
        moment_ms(from_, "--from") if from_ is not None else None,
        moment_ms(to, "--to") if to is not None else None,
        tuple(offset_range(text) for text in ranges),
    )


def say_range(report: RangeReport) -> None:
    """One line about a range job."""
    if report.verdict is None:
        say(report.ended)
    else:
        replaced = f" in place of {report.replaced:,}" if report.replaced else ""
        say(f"range job {report.batch_id}: {report.verdict.value}: {report.rows:,} rows{replaced}; {report.ended}")


def range_document(report: RangeReport) -> dict[str, Any]:
    """Snapshot ids as text: they exceed what JSON readers keep exactly."""
    commit = {**asdict(report.commit), "snapshot_id": str(report.commit.snapshot_id)} if report.commit else None
    return {**asdict(report), "verdict": report.verdict.value if report.verdict else None, "commit": commit}

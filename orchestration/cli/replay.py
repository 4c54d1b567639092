"""`calve replay`: records that were published before are read again, for one table.

What the table never got (its history), what it lost (`--refill`), or what it has: then the rows are replaced.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, sink
from calve.orchestration.cli.output import ask, say, say_json, say_table, show_lines, working
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.wording import counted

if TYPE_CHECKING:
    from calve.sink_core.sink.range_jobs.jobs import RangePreview


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which rows would be replaced.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Replace rows without asking.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Read again, for one table, what was published without it. Moves no position, and adds no record twice.

    With --from, --to or --range the rows that the table has of these are replaced; with times and ranges those of both.
    What that is it says first, and asks. Times are ISO 8601 with their zone or an age such as 2h, and compared with
    `planned_at` of the ledger.

    Exit code 1: it can't be known what the table lacks, retention has taken it, or the table was changed meanwhile.
    """
    from calve.orchestration.times import span
    from calve.sink_core.sink.range_jobs.jobs import RangeJobs
    from calve.spark_jobs.engine import session_on_spark

    wanted = span(from_, to, ranges or [], names=("--from", "--to", "--range"))
    if refill and wanted is not None:
        raise ConfigError(
            "--refill reads what the table lost, --from, --to and --range replace what it has",
            hint="choose one of them",
            code=Code.OPTION,
        )
    if dry_run and wanted is None:
        raise ConfigError(
            "--dry-run shows which rows are replaced", hint="give --from, --to or --range with it", code=Code.OPTION
        )
    pipeline = sink("replay", file, connections)
    with working("connecting") as status, session_on_spark(pipeline) as session:
        session.bind_published()
        jobs = RangeJobs(session, on_progress=lambda step: status.update(f"{step.phase}: {step.message}"))
        if wanted is not None:
            if dry_run or not yes:
                status.update("looking for what would be replaced")
                preview = jobs.preview(table, wanted)
                if dry_run and as_json:
                    say_json(asdict(preview))
                else:
                    _say_preview(preview)
                if dry_run:
                    return
                status.stop()
                ask("Replace them?", as_json=as_json)
                status.start()
            reports = [jobs.replay(table, wanted)]
        else:
            reports = [jobs.refill(table)] if refill else list(jobs.history_to_end(table))
    if as_json:
        say_json({"jobs": [report.to_json() for report in reports]})
    else:
        show_lines(line for report in reports for line in report.lines())


def _say_preview(preview: RangePreview) -> None:
    if preview.ended:
        say(preview.ended)
        return
    rows = [[topic, str(at), f"{start:,}", f"{end:,}", f"{end - start:,}"] for topic, at, start, end in preview.ranges]
    say_table("ranges", ["topic", "partition", "start", "end", "offsets"], rows)
    files = f"{counted(preview.files, 'file', 'files')} of {preview.bytes / 2**20:,.1f} MiB"
    say(f"{preview.offsets:,} offsets to read again, {preview.rows:,} rows of {preview.table} to replace, in {files}")

"""`calve dead-letters`: the records that could not be stored."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, sink
from calve.orchestration.cli.output import ask, say, say_json, say_table, working
from calve.sink_core.errors import EXIT_UNREACHABLE
from calve.sink_core.wording import moment_text

if TYPE_CHECKING:
    from calve.sink_core.sink.dead_letters.jobs import DeadLetterReport
    from calve.sink_core.sink.dead_letters.listing import Letter, Letters

app = typer.Typer(help="The records that could not be stored: show them, try them again.", no_args_is_help=True)

_COLUMNS = ["record", "timestamp", "stage", "error", "value"]


@command(app, "list")
def list_(
    file: PipelineFile,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show so many at most.")] = 20,
    topic: Annotated[str | None, typer.Option(metavar="T", help="Only of this topic.", show_default=False)] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only with a later timestamp: ISO 8601 with a zone, or an age such as 7d."),
    ] = None,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the dead letters, the newest first, and how many there are of each error. Reads their table only.

    Of the values the beginning is shown, without what is named like a secret.
    """
    from calve.orchestration.times import moment_or_age_ms
    from calve.sink_core.sink.dead_letters.listing import letters
    from calve.sink_core.sink.loop.session import Session

    pipeline = sink("dead-letters list", file, connections)
    since_ms = None if since is None else moment_or_age_ms(since, "--since", datetime.now(UTC))
    with working("reading dead letters"), Session.open(pipeline) as session:
        found = letters(session, limit=limit, topic=topic, since_ms=since_ms)
    if as_json:
        say_json(_document(found))
    else:
        _say(found)


@command(app, "replay")
def replay(
    file: PipelineFile,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="TOPIC/P:START-END", help="Only those of these offsets; several times."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Try dead letters again, once what spoiled them is mended: those that fit now go to the tables their batch fed,
    and leave the dead letters with the same publish. The others stay, with their error of today.

    Exit code 1: the dead letters can't be told apart, or a table has a finding. 3: other range jobs were faster, again
    and again.
    """
    from calve.orchestration.times import offset_range
    from calve.sink_core.control.decision import Verdict
    from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
    from calve.spark_jobs.engine import session_on_spark

    wanted = [offset_range(text) for text in ranges or []]
    pipeline = sink("dead-letters replay", file, connections)
    if not yes:
        ask(f"Move what fits now from {pipeline.dead_letter_table} to the tables?", as_json=as_json)
    with working("connecting") as status, session_on_spark(pipeline) as session:
        session.bind_published()
        jobs = DeadLetterJobs(session, on_progress=lambda step: status.update(f"{step.phase}: {step.message}"))
        report = jobs.replay(wanted)
    if as_json:
        say_json(_replayed(report))
    else:
        _say_replayed(report)
    if report.verdict is Verdict.STALE:
        raise typer.Exit(EXIT_UNREACHABLE)


def _say_replayed(report: DeadLetterReport) -> None:
    for batch_id in report.jobs:
        say(f"range job {batch_id}")
    for why, number in report.left.items():
        say(f"{number:,} not tried: {why}", style="yellow")
    still_bad = f"; {report.still_bad:,} still bad" if report.jobs or report.still_bad else ""
    say(f"{report.table}: {report.ended}{still_bad}")


def _replayed(report: DeadLetterReport) -> dict[str, Any]:
    commits = [{**asdict(commit), "snapshot_id": str(commit.snapshot_id)} for commit in report.commits]
    verdict = report.verdict.value if report.verdict else None
    return {**asdict(report), "verdict": verdict, "commits": commits}


def _say(found: Letters) -> None:
    if found.newest:
        say_table(f"{found.table}: {len(found.newest):,} of {found.total:,}", _COLUMNS, [_row(x) for x in found.newest])
    say_table("by error", ["dead letters", "error"], [[f"{number:,}", error] for error, number in found.by_error])
    say(f"{found.table}: {found.total:,} dead letters")


def _row(letter: Letter) -> list[str]:
    place = f"{letter.topic}[{letter.partition}] {letter.offset}"
    return [place, _shown(letter.timestamp_ms) or "-", letter.stage, letter.error, letter.preview]


def _shown(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else moment_text(timestamp_ms)


def _document(found: Letters) -> dict[str, Any]:
    letters = [{**asdict(x), "timestamp": _shown(x.timestamp_ms)} for x in found.newest]
    errors = [{"error": error, "dead_letters": number} for error, number in found.by_error]
    return {"table": found.table, "total": found.total, "newest": letters, "by_error": errors}

"""`calve dead-letters`: the records that could not be stored."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.boundary import command
from orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile
from orchestration.cli.output import say, say_json, say_table, working

if TYPE_CHECKING:
    from sink_core.dead_letters.listing import Letter, Letters

app = typer.Typer(help="The records that could not be stored: show them.", no_args_is_help=True)

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
    from orchestration.cli.times import moment_or_age_ms
    from sink_core.config.load import load
    from sink_core.dead_letters.listing import letters
    from sink_core.session import Session

    pipeline = load(file, connections)
    since_ms = None if since is None else moment_or_age_ms(since, "--since", datetime.now(UTC))
    with working("reading dead letters"), Session.open(pipeline) as session:
        found = letters(session, limit=limit, topic=topic, since_ms=since_ms)
    if as_json:
        say_json(_document(found))
    else:
        _say(found)


def _say(found: Letters) -> None:
    if found.newest:
        say_table(f"{found.table}: {len(found.newest):,} of {found.total:,}", _COLUMNS, [_row(x) for x in found.newest])
    say_table("by error", ["dead letters", "error"], [[f"{number:,}", error] for error, number in found.by_error])
    say(f"{found.table}: {found.total:,} dead letters")


def _row(letter: Letter) -> list[str]:
    place = f"{letter.topic}[{letter.partition}] {letter.offset}"
    return [place, _shown(letter.timestamp_ms) or "-", letter.stage, letter.error, letter.preview]


def _shown(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _document(found: Letters) -> dict[str, Any]:
    letters = [{**asdict(x), "timestamp": _shown(x.timestamp_ms)} for x in found.newest]
    errors = [{"error": error, "dead_letters": number} for error, number in found.by_error]
    return {"table": found.table, "total": found.total, "newest": letters, "by_error": errors}

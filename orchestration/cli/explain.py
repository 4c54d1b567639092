"""`calve explain`: what a code or a finding means."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson
from calve.orchestration.cli.output import say, say_json, say_table

if TYPE_CHECKING:
    from calve.sink_core.codes import Explanation


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "explain")(explain)


def explain(
    code: Annotated[
        str | None,
        typer.Argument(metavar="[CODE|FINDING]", help="Such as CLV-2103 or table-dropped.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a code or a finding means, and what to do about it; without one list them all.

    Exit code 2: there is no such code or finding.
    """
    from calve.sink_core.explain import CODES, look_up

    if code is not None:
        row = look_up(code)
        if as_json:
            say_json(row)
        else:
            _say(row)
    elif as_json:
        say_json([asdict(row) for row in CODES.values()])
    else:
        say_table("codes", ["code", "what"], [[row.code, _titled(row)] for row in CODES.values()])


def _say(row: Explanation) -> None:
    from calve.sink_core.explain import choices_of, plain
    from calve.sink_core.finding import FindingKind

    say(f"{row.code} {_titled(row)}")
    say(f"  cause: {plain(row.meaning)}")
    say(f"  what to do: {plain(row.remedy)}")
    if isinstance(row, FindingKind):
        say(f"  seen by: {plain(row.seen_by)}")
        for choice, does in choices_of(row):
            say(f"  --choose {choice}: {plain(does)}")
        if row.sql:
            say(f"  {row.sql}")


def _titled(row: Explanation) -> str:
    from calve.sink_core.explain import plain
    from calve.sink_core.finding import FindingKind

    return f"{row.name}: {plain(row.title)}" if isinstance(row, FindingKind) else plain(row.title)

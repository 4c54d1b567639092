"""`calve resolve`: answer a finding.

What a kind gives for it is called with the pipeline, and opens its `Answers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind, user
from calve.orchestration.cli.output import ask, say, say_json, working

if TYPE_CHECKING:
    from calve.sink_core.control.answers import Prepared


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "resolve")(resolve)


def resolve(
    file: PipelineFile,
    finding: Annotated[str, typer.Argument(help="Its name, as the message has it.", show_default=False)],
    choose: Annotated[
        str | None, typer.Option("--choose", metavar="C", help="One of the finding's choices.", show_default=False)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="Table or topic, if there are several.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Answer a finding by one of its choices. Says what it will do, with both values, and asks.

    Exit code 2: the finding does not stand, or has no such choice; nothing was changed. 3: somebody was faster.
    """
    pipeline, opened = of_kind("resolve", file, connections)
    with opened(pipeline) as answers:
        with working("looking"):
            prepared = answers.prepare(finding, subject, choose)
        if not as_json:
            _say(prepared)
        if not yes:
            ask("Do it?", as_json=as_json)
        with working("resolving"):
            done = answers.carry_out(prepared, user())
    if as_json:
        found = prepared.found
        said = {"finding": found.finding, "subject": found.subject, "stored": found.stored, "found": found.found}
        does = {"choice": prepared.choice, "does": prepared.answer.would, "done": done}
        say_json({"pipeline": pipeline.name, **said, **does})
    else:
        for line in done:
            say(line)


def _say(prepared: Prepared) -> None:
    say(prepared.found.message)
    say(f"{prepared.choice}:")
    for line in prepared.answer.would:
        say(f"  {line}")

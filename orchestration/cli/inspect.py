"""`calve plan`, `calve status` and `calve verify`: looking without touching.

What a kind does for them is called with its opened control plane, for `verify` with `deep` and `on_progress` too, and
returns a report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.kinds import KINDS
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind
from calve.orchestration.cli.output import show, working
from calve.sink_core.errors import EXIT_STOPPED

Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only batches planned since then: ISO 8601 with a zone, or an age such as 7d."),
]
Deep = Annotated[bool, typer.Option("--deep", help="Look at each row's source offset, and count again in Kafka.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "plan")(plan)
    command(app, "status")(status)
    command(app, "verify")(verify)


def plan(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show what the next batch would read; of a sink also which tables it would change by a sample of those records.

    Writes nothing; the number of tasks assumes this machine's cores.
    """
    _look("plan", "reading positions and end offsets", file, connections, as_json=as_json)


def status(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show lag, batches in flight or not committed, what is written to, and what retention leaves."""
    _look("status", "looking", file, connections, as_json=as_json)


def _look(name: str, doing: str, file: Path, connections: Path | None, *, as_json: bool) -> None:
    pipeline, body = of_kind(name, file, connections)
    with working(doing), KINDS[pipeline.kind].open(pipeline) as plane:
        report = body(plane)
    show(report, as_json=as_json)


def verify(
    file: PipelineFile,
    deep: Deep = False,
    since: Since = None,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every source offset was accounted for once. Exit code 0: proven; 1: violated, with the ranges."""
    from datetime import UTC, datetime

    from calve.orchestration.times import moment_or_age_ms

    pipeline, body = of_kind("verify", file, connections)
    bounds = {}
    if since is not None:
        if pipeline.kind != "sink":
            raise typer.BadParameter(f"a {pipeline.kind} is proven from its start", param_hint="--since")
        bounds = {"since_ms": moment_or_age_ms(since, "--since", datetime.now(UTC))}
    with working("connecting") as spinner, KINDS[pipeline.kind].open(pipeline) as plane:
        report = body(plane, deep=deep, on_progress=spinner.update, **bounds)
    show(report, as_json=as_json)
    if not report.proven:
        raise typer.Exit(EXIT_STOPPED)

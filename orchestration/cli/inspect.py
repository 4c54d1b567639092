"""`calve plan`, `calve status` and `calve verify`: looking without touching.

What a kind does for them is called with the pipeline and `as_json`, for `verify` with `deep` and `since_ms` too.
"""

from __future__ import annotations

from typing import Annotated

import typer

from calve.orchestration.cli.boundary import command
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind

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
    pipeline, body = of_kind("plan", file, connections)
    body(pipeline, as_json=as_json)


def status(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Show lag, batches in flight or not committed, what is written to, and what retention leaves."""
    pipeline, body = of_kind("status", file, connections)
    body(pipeline, as_json=as_json)


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

    since_ms = moment_or_age_ms(since, "--since", datetime.now(UTC)) if since is not None else None
    pipeline, body = of_kind("verify", file, connections)
    body(pipeline, deep=deep, since_ms=since_ms, as_json=as_json)
